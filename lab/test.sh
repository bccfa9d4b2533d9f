# shellcheck shell=bash
# The gate: runs all tests; the last line of its output counts them.

# --- JDK 21, the oldest that Aliquot runs on ------------------------------------------------------------------------

# A Debian trixie root with its JDK 21, in the cache. gcc, make and cmake are not in it: native-shim is built already.
jdk21_root() { printf '%s/jdk21-%s' "$cache" "$(declare -f make_jdk21_root | sha256sum | cut -c1-16)"; }

make_jdk21_root() {
    local folder
    folder=$(jdk21_root)
    rm -rf "$cache"/jdk21-*
    mmdebstrap --variant=minbase --include=openjdk-21-jdk-headless \
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

prepare_tests() { # long?
    install_missing_packages "the tests" < <(test_packages)
    lock_cache
    [ -f "$(test_python)/complete" ] || step python "Installing Python packages for the tests, once" contained make_test_python
    [ -z "$1" ] || [ -f "$(jdk21_root)/complete" ] ||
        step jdk21 "Making a Debian trixie root with JDK 21, once; about 2 minutes" contained make_jdk21_root
    unlock_cache
    PATH=$(test_python)/bin:$PATH
}

# Prints the JUnit XML reports of Surefire, Failsafe and CTest that are newer than a file.
reports() { # FILE
    find "$root" \( -name .git -o -name .lab \) -prune -o -type f -name '*.xml' \
        \( -path "*/surefire-reports/TEST-*" -o -path "*/failsafe-reports/TEST-*" -o -path "*/native-shim/target/ctest.xml" \) -newer "$1" -print
}

# Copies a run's reports, since the next run overwrites them.
keep_reports() { # NAME FILE: older than the reports
    local file
    mkdir -p "$lab/reports/$1"
    reports "$2" | while read -r file; do
        cp "$file" "$lab/reports/$1/$(printf %s "${file#"$root"/}" | tr / _)"
    done
}

count_reports() { python3 "$root/lab/count-tests.py" "$lab/reports"; }

run_tests() { # long?
    local mark=$lab/reports/mark status=0
    local -a more=()
    if [ -n "$1" ]; then
        more=(-Daliquot.histories=10000) # of 1,000 steps each against the ledger
        export ALIQUOT_KILL_ROUNDS=5000  # of processes that allocate
        export ALIQUOT_LONG=1            # every fault of two schedulers at once
    fi
    rm -rf "$lab/reports"
    mkdir -p "$lab/reports"
    cd "$root"
    touch "$mark"
    export ALIQUOT_BUILT=1 # the lab's tests start the lab with the output of this build
    setpriv --pdeathsig KILL ./mvnw -B -ntp --fail-at-end verify "${more[@]}" < /dev/null || status=$?
    keep_reports newest "$mark"
    if [ -n "$1" ]; then
        say "" "Unit and component tests once more, on JDK 21 in a Debian trixie root"
        touch "$mark"
        (contained in_jdk21_root ./mvnw -B -ntp --fail-at-end -pl '!lab,!native-shim' -DskipITs verify < /dev/null) || status=$?
        keep_reports jdk21 "$mark"
    fi
    say ""
    count_reports || status=1
    return "$status"
}
