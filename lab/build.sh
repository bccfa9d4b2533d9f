# shellcheck shell=bash
# Builds the lab's programs: Kubernetes, etcd, Helm, containerd, runc, NVIDIA's container runtime and device plugin, cached
# under the version or hash of their sources; and Aliquot, in the checkout.

# Go's caches: GOCACHE and GOMODCACHE where they are set; else folders in the lab's cache, several gigabytes that
# build_programs removes when the programs are built, and `down --purge` otherwise.
# A compiler runs for a second and needs at most 750 MB without collecting its garbage, which takes 14 % of its time.
go_environment() {
    export GOFLAGS="${GOFLAGS:-} -modcacherw" CGO_CFLAGS=-w GOGC=off GOMEMLIMIT=1GiB
    [ -n "${GOCACHE:-}" ] || export GOCACHE=$cache/go/build
    [ -n "${GOMODCACHE:-}" ] || export GOMODCACHE=$cache/go/mod
}

# Debugging information takes 12 % of the compiler's time, inlining 25 %. What the API server and kube-scheduler spend their
# time in is inlined. With these tags a program with cgo shares the compiled packages of those without.
go_flags=(
    -trimpath -tags=netgo,osusergo
    -gcflags=all=-dwarf=false '-gcflags=k8s.io/...=-l -dwarf=false'
    -gcflags=k8s.io/{apimachinery,apiserver,kubernetes/pkg/scheduler}/...=-dwarf=false
)

# A folder with etcd, Kubernetes' programs and Helm under their names
cluster_programs() {
    printf '%s/programs/kubernetes-%s-helm-%s-%s' "$cache" "$kubernetes_version" "$helm_version" \
        "$(cd "$root/lab/kube" && hash_of "$kubernetes_modules" "${kubernetes_modules%.mod}.sum" main.go)"
}
nvidia_runtime_program() { printf '%s/programs/nvidia-container-runtime-%s' "$cache" "$nvidia_toolkit_version"; }
# A folder with containerd, its shim, ctr and runc
runtime_programs() { printf '%s/programs/containerd-%s-runc-%s' "$cache" "$containerd_version" "$runc_version"; }
# A folder: the device plugin and GPU feature discovery are one module.
nvidia_plugin_programs() { printf '%s/programs/nvidia-plugin-%s' "$cache" "$(lab_modules)"; }
lab_modules() { (cd "$root" && hash_of lab/kube/{go.mod,go.sum}); }

kubernetes_programs=(kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl)

# Builds programs of the module lab/kube, or of modules that it names, into the folder OUT.tmp.
build_in_module() { # OUT ARGUMENT OF go build...
    go_environment
    cd "$root/lab/kube"
    rm -rf "$1.tmp"
    mkdir "$1.tmp"
    go build -mod=readonly -buildvcs=false "${go_flags[@]}" -o "$1.tmp/" "${@:2}"
}

# Without cgo the programs are static: the same file runs on this machine and in an image. Helm is of lab/kube/go.mod with
# each version of Kubernetes.
build_cluster_programs() {
    local out name minor=${kubernetes_version#1.} version=k8s.io/component-base/version helm=helm.sh/helm/v3/pkg/chartutil
    out=$(cluster_programs)
    CGO_ENABLED=0 build_in_module "$out" "-modfile=$kubernetes_modules" -ldflags "-s -w \
        -X $version.gitVersion=v$kubernetes_version -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*}" .
    # chartutil: the cluster version that `helm template` assumes, as in Helm's Makefile; the default is 1.20
    CGO_ENABLED=0 build_in_module "$out.helm" \
        -ldflags "-s -w -X $helm.k8sVersionMajor=1 -X $helm.k8sVersionMinor=${minor%%.*}" helm.sh/helm/v3/cmd/helm
    mv "$out.helm.tmp/helm" "$out.tmp"
    rm -r "$out.helm.tmp"
    for name in etcd "${kubernetes_programs[@]}"; do ln "$out.tmp/kube" "$out.tmp/$name"; done
    rm "$out.tmp/kube"
    publish "$out.tmp" "$out"
}

# --- official binaries ----------------------------------------------------------------------------------------------

# The file of one of the projects' release hosts, from ALIQUOT_BINARIES: a folder or a URL that holds what the hosts hold,
# below the hosts' names. https:// is the hosts themselves.
download() { # HOST/PATH FILE
    local source=$ALIQUOT_BINARIES
    case $source in *://*) ;; *) source=file://$(realpath "$source") ;; esac
    echo "${source%/}/$1"
    curl --fail --silent --show-error --location --connect-timeout 30 --speed-time 60 --speed-limit 1000 --output "$2" "${source%/}/$1" ||
        die "${source%/}/$1 cannot be downloaded." "It is the official binary of a program of the lab. Without ALIQUOT_BINARIES the lab compiles these programs."
}

# The checksum file holds a hash, or lines of a hash and a file's name.
download_checked() { # HOST/PATH HOST/PATH OF THE CHECKSUM FILE FILE
    local found expected
    download "$1" "$3"
    download "$2" "$3.checksum"
    expected=$(awk -v "name=$(basename "$1")" 'NF == 1 || $2 == name || $2 == "*" name { print $1; exit }' "$3.checksum")
    found=$(sha256sum "$3" | cut -d ' ' -f 1)
    [ "$found" = "$expected" ] || die "$1 has the SHA-256 $found, but $(basename "$2") says ${expected:-nothing about it}." "Remove the file where it is wrong and try again."
    rm "$3.checksum"
}

download_cluster_programs() {
    local out folder name path archive
    out=$(cluster_programs)
    folder=$(mktemp -d "$cache/programs/install.XXXXXX")
    for name in "${kubernetes_programs[@]}"; do
        path=dl.k8s.io/release/v$kubernetes_version/bin/linux/amd64/$name
        download_checked "$path" "$path.sha256" "$folder/$name"
    done
    archive=etcd-v$etcd_version-linux-amd64.tar.gz path=github.com/etcd-io/etcd/releases/download/v$etcd_version
    download_checked "$path/$archive" "$path/SHA256SUMS" "$folder/$archive"
    tar -xzf "$folder/$archive" -C "$folder" --no-same-owner --strip-components 1 "${archive%.tar.gz}/etcd"
    archive=helm-v$helm_version-linux-amd64.tar.gz
    download_checked "get.helm.sh/$archive" "get.helm.sh/$archive.sha256sum" "$folder/$archive"
    tar -xzf "$folder/$archive" -C "$folder" --no-same-owner --strip-components 1 linux-amd64/helm
    rm "$folder"/*.tar.gz
    chmod 755 "$folder" "$folder"/*
    publish "$folder" "$out"
}

# --- NVIDIA's programs ----------------------------------------------------------------------------------------------

# Builds programs of the toolkit into the folder OUT.tmp. The linker flags of its Makefile: they load libnvidia-ml.so.1 at run
# time, and the runtime never in CDI mode.
build_from_toolkit() { # OUT PROGRAM...
    local -a packages
    mapfile -t packages < <(printf "github.com/NVIDIA/nvidia-container-toolkit/cmd/%s@v$nvidia_toolkit_version\n" "${@:2}")
    go_environment
    rm -rf "$1.tmp"
    (cd / && CGO_ENABLED=1 GOBIN=$1.tmp go install "${go_flags[@]}" \
        -ldflags "-s -w '-extldflags=-Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files -Wl,-z,lazy'" "${packages[@]}")
}

build_nvidia_runtime() {
    local out
    out=$(nvidia_runtime_program)
    build_from_toolkit "$out" nvidia-container-runtime
    publish "$out.tmp/nvidia-container-runtime" "$out"
    rm -rf "$out.tmp"
}

build_nvidia_ctk() {
    local out
    out=$(nvidia_ctk_programs)
    build_from_toolkit "$out" nvidia-ctk nvidia-cdi-hook
    publish "$out.tmp" "$out"
}

build_nvidia_plugin() {
    local out module=github.com/NVIDIA/k8s-device-plugin/cmd
    out=$(nvidia_plugin_programs)
    CGO_ENABLED=1 build_in_module "$out" -ldflags "-s -w '-extldflags=-Wl,-z,lazy'" \
        "$module/nvidia-device-plugin" "$module/gpu-feature-discovery"
    publish "$out.tmp" "$out"
}

# --- containerd and runc --------------------------------------------------------------------------------------------

# From copies of the modules: go install refuses a module that replaces others. vendor/ of a downloaded module holds only a
# list, which go build would take for the dependencies.
build_runtime() {
    local folder module copy version=github.com/containerd/containerd/v2/version
    go_environment
    folder=$(mktemp -d "$cache/programs/install.XXXXXX")
    for module in "github.com/containerd/containerd/v2@v$containerd_version" "github.com/opencontainers/runc@v$runc_version"; do
        copy=$(cd / && go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
        cp -r --no-preserve=mode "$copy" "$folder/"
    done
    mkdir "$folder/programs"
    cd "$folder/v2@v$containerd_version"
    CGO_ENABLED=0 go build -buildvcs=false "${go_flags[@]}" -ldflags "-s -w -X $version.Version=v$containerd_version" \
        -o "$folder/programs/" ./cmd/{containerd,containerd-shim-runc-v2,ctr}
    cd "$folder/runc@v$runc_version"
    rm -r vendor
    CGO_ENABLED=1 go build -mod=mod -buildvcs=false "${go_flags[@]}" -tags=netgo,osusergo,seccomp -ldflags '-s -w' \
        -o "$folder/programs/" .
    cd /
    publish "$folder/programs" "$(runtime_programs)"
    rm -rf "$folder"
}

# --- the tests' programs --------------------------------------------------------------------------------------------

# Clients with client-go's informers, of the oldest and the newest version that is tested; the newest is that of lab/kube.
informer_versions=(1.31 1.35)
informer_program() { printf '%s/programs/informer-%s-%s' "$cache" "$1" "$(test_program_hash informer)"; } # VERSION
# A device plugin for what are no GPUs
host_devices_program() { printf '%s/programs/hostdevices-%s' "$cache" "$(test_program_hash hostdevices)"; }
# A folder with nvidia-ctk, which writes CDI specifications, and nvidia-cdi-hook, which these name
nvidia_ctk_programs() { printf '%s/programs/nvidia-ctk-%s' "$cache" "$nvidia_toolkit_version"; }
# A folder with helm, of version 4, and kube-score
chart_programs() { printf '%s/programs/helm-%s-kube-score-%s' "$cache" "$helm4_version" "$kube_score_version"; }
test_program_hash() { (cd "$root" && hash_of lab/kube/{go.mod,go.sum} "lab/kube/$1"); } # FOLDER

build_informer() { # VERSION
    local modfile=informer/client-go-$1.mod
    if [ -f "$root/lab/kube/$modfile" ]; then set -- "$1" "-modfile=$modfile"; fi
    build_test_program "$(informer_program "$1")" informer "${@:2}"
}

build_host_devices() { build_test_program "$(host_devices_program)" hostdevices; }

# Builds a static program of a module that replaces no other.
go_install() { # FOLDER PACKAGE@VERSION
    go_environment
    (cd / && CGO_ENABLED=0 GOBIN=$1 go install -trimpath -ldflags '-s -w' "$2")
}

build_chart_programs() {
    local out
    out=$(chart_programs)
    rm -rf "$out.tmp"
    go_install "$out.tmp" "helm.sh/helm/v4/cmd/helm@v$helm4_version"
    go_install "$out.tmp" "github.com/zegl/kube-score/cmd/kube-score@v$kube_score_version"
    publish "$out.tmp" "$out"
}

# Builds one static program from a folder of lab/kube.
build_test_program() { # OUT FOLDER ARGUMENT OF go build...
    CGO_ENABLED=0 build_in_module "$1" "${@:3}" -ldflags "-s -w" "./$2"
    publish "$1.tmp/$2" "$1"
    rm -rf "$1.tmp"
}

# Builds those of the tests' programs that the cache lacks. Before build_programs, which removes the compiled packages.
build_test_programs() { # [PART of the long tier]
    local version
    lock_cache
    mkdir -p "$cache/programs"
    for version in "${informer_versions[@]}"; do
        [ -x "$(informer_program "$version")" ] ||
            step "informer-$version" "Building a client with client-go $version, once; about 1 minute" contained build_informer "$version"
    done
    if [ "${1:-}" = lab ]; then
        [ -x "$(host_devices_program)" ] ||
            step hostdevices "Building a device plugin for the tests, once" contained build_host_devices
        [ -d "$(nvidia_ctk_programs)" ] ||
            step nvidia-ctk "Building NVIDIA's generator of CDI specifications, once" contained build_nvidia_ctk
        [ -d "$(chart_programs)" ] ||
            step chart-programs "Building Helm 4 and kube-score, once; about 4 minutes" contained build_chart_programs
    fi
    [ "${1:-}" != conformance ] || [ -d "$(conformance_programs)" ] ||
        step conformance "Building Kubernetes' conformance tests, once; about 10 minutes on 2 cores" contained build_conformance_programs
    unlock_cache
}

# --- all of them ----------------------------------------------------------------------------------------------------

programs_missing() {
    [ ! -d "$(cluster_programs)" ] || [ ! -d "$(runtime_programs)" ] ||
        [ ! -d "$(nvidia_plugin_programs)" ] || [ ! -x "$(nvidia_runtime_program)" ]
}

# One after the other: they share compiled packages, and the Go compiler keeps all processors busy.
build_missing_programs() {
    if [ ! -d "$(cluster_programs)" ]; then
        if [ -n "${ALIQUOT_BINARIES:-}" ]; then download_cluster_programs; else build_cluster_programs; fi
    fi
    [ -d "$(runtime_programs)" ] || build_runtime
    [ -d "$(nvidia_plugin_programs)" ] || build_nvidia_plugin
    [ -x "$(nvidia_runtime_program)" ] || build_nvidia_runtime
}

# Builds those of the programs that the cache lacks, and at the same time runs other functions, which wait for the network.
build_programs() { # [FUNCTION...]
    lock_cache
    mkdir -p "$cache/programs"
    rm -rf "$cache"/programs/{install.*,*.tmp}
    ! programs_missing || step programs "Building the lab's programs, Kubernetes $kubernetes_version and others, once; about 7 minutes on 2 cores" \
        contained together build_missing_programs "$@"
    rm -rf "$cache/go"
    unlock_cache
}

# --- Aliquot --------------------------------------------------------------------------------------------------------

# Build output that images contain
aliquot_artifacts=(
    scheduler/target/aliquot-scheduler.jar
    simulator/target/aliquot-simulator.jar
    device-plugin/target/aliquot-device-plugin.jar
    native-shim/build/libaliquot.so
    native-shim/build/VERSION
    native-shim/build/arbiter/aliquot-arbiter
    native-shim/build/hook/aliquot-hook
    native-shim/build/fake-driver/{libcuda.so.1,libnvidia-ml.so.1,nvidia-smi,aliquot-fake-driver,vgpu-sample}
)

aliquot_sources() {
    (cd "$root" && hash_of pom.xml .mvn charts/aliquot/probe.sh api scheduler simulator device-plugin native-shim)
}

# A fingerprint of sources and artifacts
aliquot_state() {
    aliquot_sources
    (cd "$root" && stat -c '%n %s %Y' "${aliquot_artifacts[@]}")
}

build_aliquot() {
    cd "$root"
    # Maven's plugins read maven.test.skip, the native build reads skipTests. The entries of a jar have local times.
    TZ=UTC ./mvnw -q -B -ntp -T 2 -Dmaven.test.skip -DskipTests -Dspotless.check.skip package -pl scheduler,simulator,device-plugin,native-shim -am
    aliquot_state > "$root/scheduler/target/aliquot-build"
}

# What the acceptance kit needs to run the node agent (docs/acceptance.md), in native-shim/build/agent-kit, from where the
# kit's CMake target takes it: a Java runtime with the modules that agent and stand-ins use, both, and the hook.
build_acceptance_agent() {
    local agent=$root/native-shim/build/agent-kit
    cd "$root"
    cmake -S native-shim -B native-shim/build
    cmake --build native-shim/build --parallel 2 --target aliquot-hook
    env -u ALIQUOT_BUILT ./mvnw -q -B -ntp -DskipTests -Dspotless.check.skip -Pacceptance-kit package -pl device-plugin -am
    rm -rf "$agent"
    mkdir "$agent"
    "$JAVA_HOME/bin/jlink" --output "$agent/java" --strip-java-debug-attributes --no-header-files --no-man-pages --compress zip-6 \
        --add-modules java.base,java.logging,java.management,java.net.http,java.xml,jdk.crypto.ec,jdk.httpserver,jdk.unsupported
    cp -r device-plugin/target/{lib,aliquot-device-plugin.jar,aliquot-device-plugin-tests.jar} device-plugin/java.options \
        native-shim/build/hook/aliquot-hook "$agent"
}

build_acceptance_kit() {
    build_acceptance_agent
    cmake --build native-shim/build --parallel 2 --target acceptance-kit
}

# The parts of Aliquot that the benchmarks run
build_scheduler() {
    cd "$root"
    ./mvnw -q -B -ntp -Dmaven.test.skip -DskipTests -Dspotless.check.skip package -pl scheduler -am
}

# Builds Aliquot's programs if sources or artifacts have changed since the last build.
build_aliquot_if_changed() {
    local stamp=$root/scheduler/target/aliquot-build
    [ -f "$stamp" ] && [ "$(aliquot_state 2> /dev/null)" = "$(cat "$stamp")" ] && return
    step aliquot "Building Aliquot (Maven, CMake)" contained build_aliquot
}
