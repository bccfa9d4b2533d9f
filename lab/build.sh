# shellcheck shell=bash
# Builds the lab's programs: Kubernetes, Helm, NVIDIA's container runtime and device plugin, cached under the version or
# hash of their sources; and Aliquot, in the checkout.

# Go's caches: GOCACHE and GOMODCACHE where they are set; else folders in the lab's cache, several gigabytes that
# build_programs removes when the programs are built, and `down --purge` otherwise.
go_environment() {
    export GOFLAGS="${GOFLAGS:-} -modcacherw"
    [ -n "${GOCACHE:-}" ] || export GOCACHE=$cache/go/build
    [ -n "${GOMODCACHE:-}" ] || export GOMODCACHE=$cache/go/mod
}

kube_program() { printf '%s/programs/kube-%s' "$cache" "$(cd "$root" && hash_of lab/kube)"; }
helm_program() { printf '%s/programs/helm-%s-%s' "$cache" "$helm_version" "$kubernetes_version"; }
# A folder: the device plugin and GPU feature discovery are one module.
nvidia_plugin_programs() { printf '%s/programs/nvidia-plugin-%s' "$cache" "$nvidia_plugin_version"; }
nvidia_runtime_program() { printf '%s/programs/nvidia-container-runtime-%s' "$cache" "$nvidia_toolkit_version"; }

build_kube() {
    go_environment
    local out version=k8s.io/component-base/version minor=${kubernetes_version#1.}
    out=$(kube_program)
    cd "$root/lab/kube"
    # Without cgo the program is static: the same file runs on this machine and in an image.
    CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -o "$out.tmp" -ldflags "-s -w \
        -X $version.gitVersion=v$kubernetes_version -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*}" .
    publish "$out.tmp" "$out"
}

go_install() { # PACKAGE@VERSION OUT LDFLAGS
    go_environment
    local bin
    bin=$(mktemp -d "$cache/programs/install.XXXXXX")
    (cd / && GOBIN=$bin go install -trimpath -ldflags "$3" "$1")
    publish "$bin"/* "$2"
    rm -rf "$bin"
}

build_helm() {
    local util=helm.sh/helm/v3/pkg/chartutil minor=${kubernetes_version#1.}
    # The cluster version that `helm template` assumes. Helm's Makefile sets it too; the default is 1.20.
    CGO_ENABLED=0 go_install "helm.sh/helm/v3/cmd/helm@v$helm_version" "$(helm_program)" \
        "-s -w -X $util.k8sVersionMajor=1 -X $util.k8sVersionMinor=${minor%%.*}"
}

build_nvidia_runtime() {
    # The linker flags of its Makefile: the program loads libnvidia-ml.so.1 at run time, and never in CDI mode.
    CGO_ENABLED=1 go_install \
        "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-container-runtime@v$nvidia_toolkit_version" \
        "$(nvidia_runtime_program)" \
        "-s -w '-extldflags=-Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files -Wl,-z,lazy'"
}

# `go install` would ask for the list of the module's versions, which not every proxy has.
build_nvidia_plugin() {
    go_environment
    local out source module
    out=$(nvidia_plugin_programs)
    module=$(go mod download -json "github.com/NVIDIA/k8s-device-plugin@v$nvidia_plugin_version" |
        sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    [ -f "$module/go.mod" ] || die "the module of NVIDIA's device plugin cannot be downloaded."
    source=$(mktemp -d "$cache/programs/install.XXXXXX")
    cp -r "$module/." "$source"
    cd "$source"
    rm -rf "$out.tmp"
    CGO_ENABLED=1 go build -trimpath -buildvcs=false -ldflags "-s -w '-extldflags=-Wl,-z,lazy'" -o "$out.tmp/" \
        ./cmd/nvidia-device-plugin ./cmd/gpu-feature-discovery
    publish "$out.tmp" "$out"
    rm -rf "$source"
}

# The clients of the tests: client-go's informers, of the oldest and the newest version that is tested.
informer_versions=(1.31 1.35)
informer_program() { printf '%s/programs/informer-%s-%s' "$cache" "$1" "$(cd "$root" && hash_of lab/informer)"; } # VERSION

build_informer() { # VERSION
    go_environment
    local out
    out=$(informer_program "$1")
    cd "$root/lab/informer"
    CGO_ENABLED=0 go build -mod=readonly -modfile="client-go-$1.mod" -trimpath -buildvcs=false -o "$out.tmp" -ldflags "-s -w" .
    publish "$out.tmp" "$out"
}

# Builds those of the tests' programs that the cache lacks.
build_test_programs() {
    local version
    lock_cache
    for version in "${informer_versions[@]}"; do
        [ -x "$(informer_program "$version")" ] ||
            step "informer-$version" "Building a client with client-go $version, once; about 1 minute" contained build_informer "$version"
    done
    rm -rf "$cache/go"
    unlock_cache
}

# Builds those of the programs that the cache lacks.
build_programs() {
    lock_cache
    mkdir -p "$cache/programs"
    rm -rf "$cache"/programs/install.*
    [ -x "$(kube_program)" ] || step kubernetes "Building Kubernetes $kubernetes_version, once; about 10 minutes on 2 cores" contained build_kube
    [ -x "$(helm_program)" ] || step helm "Building Helm $helm_version, once; about 2 minutes" contained build_helm
    [ -x "$(nvidia_runtime_program)" ] ||
        step nvidia-runtime "Building NVIDIA's container runtime $nvidia_toolkit_version, once; about 1 minute" contained build_nvidia_runtime
    [ -d "$(nvidia_plugin_programs)" ] ||
        step nvidia-plugin "Building NVIDIA's device plugin $nvidia_plugin_version, once; about 1 minute" contained build_nvidia_plugin
    rm -rf "$cache/go"
    unlock_cache
}

# --- Aliquot --------------------------------------------------------------------------------------------------------

# Build output that the Dockerfiles copy
aliquot_artifacts=(
    scheduler/target/aliquot-scheduler.jar
    simulator/target/aliquot-simulator.jar
    device-plugin/target/aliquot-device-plugin.jar
    native-shim/build/libaliquot.so
    native-shim/build/VERSION
    native-shim/build/fake-driver/{libcuda.so.1,libnvidia-ml.so.1,nvidia-smi,aliquot-fake-driver,vgpu-sample}
)

aliquot_sources() {
    (cd "$root" && hash_of pom.xml .mvn api scheduler simulator device-plugin native-shim)
}

# A fingerprint of sources and artifacts
aliquot_state() {
    aliquot_sources
    (cd "$root" && stat -c '%n %s %Y' "${aliquot_artifacts[@]}")
}

build_aliquot() {
    cd "$root"
    # Maven's plugins read maven.test.skip, the native build reads skipTests
    ./mvnw -q -B -ntp -Dmaven.test.skip -DskipTests -Dspotless.check.skip package -pl scheduler,simulator,device-plugin,native-shim -am
    aliquot_state > "$root/scheduler/target/aliquot-build"
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
