# shellcheck shell=bash
# Runs the tests: the gate, or a part of the long tier. The last line of the output counts them.

# The parts of the long tier: lines of NAME and what it runs, for the help. On 2 cores 'lab' takes 16 minutes and 'faults'
# 30; beside other work 'java' took 8, 'native' 16 and 'jdk21' 7. The pairs of 'placement' need 46 minutes of CPU time.
# 'vm' takes 19 minutes with its start, without KVM.
# 'upgrade' takes 16 minutes, and each version of Kubernetes 9, after its programs are built. 'conformance' took 51 beside other
# builds.
long_parts() {
    cat <<-'END'
		java        ten million steps against the ledger, replicas killed under 1,000 pods with quotas, the web page with
		            5,000 GPUs, more generated requests
		placement   fragmentation against FGD on openb's workloads, with pods that require a GPU model
		native      5,000 kills of allocating programs, programs from PyPI, all GPU profiles, mixes and faults of containers, the
		            whole acceptance kit, and the node agent
		lab         the tests on the cluster that take minutes, without those of 'faults' and 'churn'
		faults      every fault of the scheduler's replicas, of its API, of nodes and of the control plane
		vm          a node in a virtual machine with systemd, cgroup v2, containerd 2, XFS and Btrfs, with and without injection by
		            CDI: limits, usage, health, files, reboots, power failures
		churn       a pod a second for 40 minutes, or ALIQUOT_CHURN_MINUTES: the memory of each program, restarts, rejected pods
		release     a release to a registry of the test's own: twice the same images, failures of the registry, signatures, an
		            installation from it
		upgrade     from the newest release, or the commit ALIQUOT_EARLIER, to this one and back, with 40 pods that keep GPUs busy
		conformance Kubernetes' own conformance tests, without Aliquot and with it, and those of the scheduler on shares
		jdk21       the unit and component tests on JDK 21
		kubernetes-VERSION  the gate's tests of the cluster on another version of Kubernetes, as 'up --kubernetes VERSION'
		            starts it, and its row in docs/support-matrix.md
	END
}

# --- JDK 21, the oldest that Aliquot runs on ------------------------------------------------------------------------

# A Debian trixie root with its JDK 21, in the cache. gcc, make and cmake are not in it: native-shim is built already.
jdk21_root() { printf '%s/jdk21-%s' "$cache" "$(declare -f make_jdk21_root | sha256sum | cut -c1-16)"; }

make_jdk21_root() {
    local folder
    folder=$(jdk21_root)
    rm -rf "$cache"/jdk21-*
    mmdebstrap --variant=minbase --include=openjdk-21-jdk-headless,e2fsprogs \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' trixie "$folder"
    : > "$folder/complete"
}

# Runs a command in that root, with the checkout, ~/.m2 and the lab's programs at the paths that they have outside.
# Call it through `contained`, whose mount namespace takes the mounts with it. The root has no Python, so the API test
# with schemathesis is skipped there.
in_jdk21_root() { # COMMAND...
    local folder path
    folder=$(jdk21_root)
    for path in /proc /sys /dev /tmp "$root" "$HOME/.m2" "$cache/programs"; do
        mkdir -p "$folder$path"
        mount --rbind "$path" "$folder$path"
    done
    cp -L /etc/resolv.conf /etc/hosts "$folder/etc/"
    # shellcheck disable=SC2016
    PATH=/usr/sbin:/usr/bin:/sbin:/bin JAVA_HOME=/usr/lib/jvm/java-21-openjdk-amd64 \
        exec chroot "$folder" bash -c 'cd "$1"; shift; exec "$@"' - "$root" "$@"
}

# A Python environment with NVIDIA's driver clients from PyPI, for the native tests, and with schemathesis, for the
# scheduler's API
test_requirements() { cat "$root/native-shim/fake-driver/test/clients.txt" "$root/lab/schemathesis.txt"; }
test_python() { printf '%s/python-%s' "$cache" "$(test_requirements | sha256sum | cut -c1-16)"; }

make_test_python() {
    local folder
    folder=$(test_python)
    rm -rf "$cache"/python-*
    python3 -m venv "$folder"
    "$folder/bin/python3" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
        --requirement <(test_requirements)
    : > "$folder/complete"
}

# "PACKAGE COMMAND-OR-PATH" lines; newer distributions ship clang's fuzzer and sanitizers in a separate package.
test_packages() {
    cat <<-'END'
		python3 python3
		python3-venv /usr/lib/python3*/ensurepip/__init__.py
		clang-format clang-format
		strace strace
		xfsprogs mkfs.xfs
		btrfs-progs mkfs.btrfs
		curl curl
		chromium chromium
		socat socat
		prometheus prometheus
		gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
		libc6-dev-arm64-cross /usr/aarch64-linux-gnu/include/stdio.h
		qemu-user-static qemu-aarch64-static
		clang clang
	END
    ! apt-cache show libclang-rt-dev > /dev/null 2>&1 ||
        echo 'libclang-rt-dev /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-x86_64.a'
}

prepare_tests() { # [PART]
    install_missing_packages "the tests" < <(test_packages)
    rm -rf "$lab/reports"
    mkdir -p "$lab/reports"
    export ALIQUOT_STEPS=$lab/reports/steps
    lock_cache
    [ -f "$(test_python)/complete" ] || step python "Installing Python packages for the tests, once" contained make_test_python
    [ "${1:-}" != jdk21 ] || [ -f "$(jdk21_root)/complete" ] ||
        step jdk21 "Making a Debian trixie root with JDK 21, once; about 2 minutes" contained make_jdk21_root
    unlock_cache
    PATH=$(test_python)/bin:$PATH
}

# Copies the JUnit XML reports of Surefire, Failsafe and CTest that are newer than a file.
keep_reports() { # FILE
    find "$root" \( -name .git -o -name .lab \) -prune -o -type f -name '*.xml' \
        \( -path "*/surefire-reports/TEST-*" -o -path "*/failsafe-reports/TEST-*" -o -path "*/native-shim/target/ctest.xml" \) \
        -newer "$1" -print | while read -r file; do
        cp "$file" "$lab/reports/$(printf %s "${file#"$root"/}" | tr / _)"
    done
}

maven() { setpriv --pdeathsig KILL ./mvnw -B -ntp --fail-at-end -Dorg.slf4j.simpleLogger.showDateTime=true verify "$@" < /dev/null; }

# Runs the tests of the cluster with these arguments, and few others. The lab's 'up' builds what they need.
maven_lab() {
    maven -pl api,testing,lab -Dsurefire.failIfNoSpecifiedTests=false "$@"
}

# The tests whose faults hit the whole cluster
fault_tests=AdmissionFaultsIT,EtcdRestoreIT,ForeignBindingsIT,GpuApiFaultsIT,KubeletRestartIT,LeaderFailoverIT,ProcessKillIT,SlowClientsIT,WithoutAllocateIT

# The tests of the cluster mostly wait; those of the other modules run beside them.
run_gate() {
    local status=0
    build_aliquot_if_changed
    export ALIQUOT_BUILT=1 # the lab runs these programs
    export ALIQUOT_UP=$lab/reports/up # the first 'up' that succeeds makes this file
    # In a session of its own, to which Linux gives as much of the processors as to all of Maven's (sched_autogroup). If it
    # fails, the lab's tests try again.
    setsid setpriv --pdeathsig KILL "$root/aliquot" up < /dev/null > "$lab/reports/up.log" 2>&1 &
    maven -T 4 '-Dlab.beside=**/chart/*Test.java' || status=$?
    wait
    return "$status"
}

# --- an upgrade from an earlier commit ------------------------------------------------------------------------------

# Releases began with this commit; the first one is upgraded from here.
before_releases=0f3b9f484014deecc20a23a2becc555cbda23ff6

# The commit that 'upgrade' starts from: ALIQUOT_EARLIER, or the newest release before this commit.
earlier_commit() {
    local release name
    release=$(git -C "$root" describe --tags --match 'v[0-9]*' --abbrev=0 HEAD~ 2> /dev/null) || release=$before_releases
    name=${ALIQUOT_EARLIER:-$release}
    git -C "$root" rev-parse --verify --quiet "$name^{commit}" ||
        die "there is no commit $name in this checkout." "Fetch it (git fetch --tags --unshallow), or name another one: ALIQUOT_EARLIER=COMMIT"
}

# A folder with that commit's chart, the lab's values for it, and its images
earlier_folder() { printf '%s/earlier-%s' "$cache" "${1:0:16}"; } # COMMIT

# Builds them with the commit's own scripts, in a checkout of it that is removed afterwards.
build_earlier() { # COMMIT
    local folder name checkout
    find "$cache" -maxdepth 1 -name 'earlier*' -mmin +1440 -exec rm -rf {} +
    folder=$(mktemp -d "$cache/earlier.XXXXXX")
    checkout=$folder/checkout
    mkdir "$checkout"
    git -C "$root" archive "$1" | tar -x -C "$checkout"
    of_earlier "$checkout" build_aliquot_if_changed
    of_earlier "$checkout" build_images "${earlier_images[@]}"
    for name in "${earlier_images[@]}"; do
        cp "$(of_earlier "$checkout" image_file "$name")" "$folder/$name.tar"
    done
    mkdir "$folder/lab"
    mv "$checkout"/lab/{values,gpus}.yaml "$folder/lab/"
    mv "$checkout/charts" "$folder/"
    rm -rf "$checkout"
    mv -T "$folder" "$(earlier_folder "$1")"
}

earlier_images=(aliquot-scheduler aliquot-device-plugin)

of_earlier() { # CHECKOUT FUNCTION [ARGUMENT...]
    setpriv --pdeathsig KILL bash "$1/lab/step.sh" "${@:2}" 8<&- 9<&-
}

# Loads the earlier commit's images into a new cluster, and gives them another tag: those of this commit have the same.
load_earlier() { # FOLDER
    local name node
    find_lab
    for name in "${earlier_images[@]}"; do
        for node in "${shared_nodes[@]}"; do
            import_image "$node" "$1/$name.tar"
            in_node "$node" ctr --namespace k8s.io images tag --force "$(image_name "$name")" "$(image_name "$name" | sed 's/:lab$/:earlier/')"
        done
    done
}

run_upgrade() {
    local commit folder
    commit=$(earlier_commit) || return
    folder=$(earlier_folder "$commit")
    say "The earlier commit is $(git -C "$root" log -1 --format='%h, %s' "$commit")"
    [ -d "$folder" ] || step earlier "Building the earlier commit, once; about 2 minutes" uncontained build_earlier "$commit"
    setpriv --pdeathsig KILL "$root/aliquot" down < /dev/null
    setpriv --pdeathsig KILL "$root/aliquot" up --without-aliquot < /dev/null
    touch "$folder" # in use, see build_earlier
    load_earlier "$folder"
    build_aliquot_if_changed
    build_images "${aliquot_images[@]}"
    step load "Loading images into the nodes" uncontained load_images_in_lab "${aliquot_images[@]}"
    ALIQUOT_LONG_EARLIER=$folder maven_lab -Dlab.asItIs=true -Dtest=None -Dit.test=UpgradeIT
}

run_vm() {
    local status=0
    setpriv --pdeathsig KILL "$root/aliquot" up < /dev/null
    setpriv --pdeathsig KILL "$root/aliquot" vm up < /dev/null
    maven_lab -Dtest=None '-Dit.test=VirtualMachine*IT' || status=$?
    setpriv --pdeathsig KILL "$root/aliquot" vm down < /dev/null || status=$?
    return "$status"
}

run_part() { # PART
    export ALIQUOT_LONG=1
    case $1 in
        java) maven -T 2 -pl api,testing,scheduler -Daliquot.histories=10000 -Daliquot.reviews=5000 -Dschemathesis.examples=20 ;;
        placement) maven -pl api,testing,scheduler,simulator -DskipITs -Dtest=RequiredModelsTest -Dsurefire.failIfNoSpecifiedTests=false ;;
        native)
            step acceptance-agent "Building the node agent of the acceptance kit (Maven)" contained build_acceptance_agent
            ALIQUOT_KILL_ROUNDS=5000 maven -pl api,testing,native-shim,device-plugin
            ;;
        lab) maven_lab -Dgroups=long -Dtest=OfficialBinariesTest "-Dit.test=!${fault_tests//,/,!},!ShortPodsIT,!ReleaseIT,!VirtualMachine*IT" ;;
        vm) run_vm ;;
        churn) maven_lab -Dtest=None -Dit.test=ShortPodsIT ;;
        faults) maven_lab -Dtest=None "-Dit.test=$fault_tests" ;;
        conformance) run_conformance ;;
        upgrade) run_upgrade ;;
        release)
            build_release_programs cosign
            build_aliquot_if_changed
            maven_lab -Dtest=ReleaseTest -Dit.test=ReleaseIT
            ;;
        kubernetes-*)
            unset ALIQUOT_LONG
            maven_lab -Dtest=None
            ;;
        jdk21)
            unset ALIQUOT_LONG
            cmake -S native-shim -B native-shim/build &&
                cmake --build native-shim/build --parallel 2 && # in the root there is no compiler
                (contained in_jdk21_root ./mvnw -B -ntp --fail-at-end -pl '!lab,!native-shim' -DskipITs verify < /dev/null)
            ;;
    esac
}

run_tests() { # [PART]
    local mark=$lab/reports/mark status=0 skipped=0 row=()
    cd "$root"
    touch "$mark"
    if [ $# -eq 0 ]; then run_gate; else run_part "$1"; fi | tee "$lab/reports/maven.log" || status=$?
    keep_reports "$mark"
    # In the root of JDK 21 there is neither a browser nor schemathesis.
    case ${1:-} in
        jdk21) skipped=2 ;;
        kubernetes-*) row=("$kubernetes_version" "$root/docs/support-matrix.md") ;;
    esac
    say ""
    python3 "$root/lab/count-tests.py" "$lab/reports" "$skipped" "${row[@]}" || status=1
    return "$status"
}
