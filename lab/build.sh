# shellcheck shell=bash
# Programs that the lab builds: Kubernetes, Helm and NVIDIA's container runtime, each once, kept in the cache under what
# it was made from; and Aliquot itself, in the checkout.

# Go's own caches are the user's when GOCACHE or GOMODCACHE say so in the environment; else they live in ours, so that
# `down --purge` finds them, and go as soon as the three programs stand, for they hold gigabytes.
go_environment() {
    export GOFLAGS="${GOFLAGS:-} -modcacherw"
    [ -n "${GOCACHE:-}" ] || export GOCACHE=$cache/go/build
    [ -n "${GOMODCACHE:-}" ] || export GOMODCACHE=$cache/go/mod
}

kube_program() { printf '%s/programs/kube-%s' "$cache" "$(cd "$root" && hash_of lab/kube)"; }
helm_program() { printf '%s/programs/helm-%s-%s' "$cache" "$helm_version" "$kubernetes_version"; }
nvidia_runtime_program() { printf '%s/programs/nvidia-container-runtime-%s' "$cache" "$nvidia_toolkit_version"; }

build_kube() {
    go_environment
    local out version=k8s.io/component-base/version minor=${kubernetes_version#1.}
    out=$(kube_program)
    cd "$root/lab/kube"
    # Without cgo the program is static: the same file runs on this machine and in the image made from it.
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
    # What `helm template` takes the cluster for; Helm's own Makefile sets it too, and else it is 1.20.
    CGO_ENABLED=0 go_install "helm.sh/helm/v3/cmd/helm@v$helm_version" "$(helm_program)" \
        "-s -w -X $util.k8sVersionMajor=1 -X $util.k8sVersionMinor=${minor%%.*}"
}

build_nvidia_runtime() {
    # The linker flags of its own Makefile: libnvidia-ml.so.1 is looked for at run time, and not at all in CDI mode.
    CGO_ENABLED=1 go_install \
        "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-container-runtime@v$nvidia_toolkit_version" \
        "$(nvidia_runtime_program)" \
        "-s -w '-extldflags=-Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files -Wl,-z,lazy'"
}

# The three programs, each built if the cache doesn't have it.
build_programs() {
    lock_cache
    mkdir -p "$cache/programs"
    rm -rf "$cache"/programs/install.*
    [ -x "$(kube_program)" ] || step kubernetes "Building Kubernetes $kubernetes_version, once; about 10 minutes on 2 cores" contained build_kube
    [ -x "$(helm_program)" ] || step helm "Building Helm $helm_version, once; about 2 minutes" contained build_helm
    [ -x "$(nvidia_runtime_program)" ] ||
        step nvidia-runtime "Building NVIDIA's container runtime $nvidia_toolkit_version, once; about 1 minute" contained build_nvidia_runtime
    rm -rf "$cache/go"
    unlock_cache
}

# --- Aliquot --------------------------------------------------------------------------------------------------------

# What the images take from the checkout; see the Dockerfiles.
aliquot_artifacts=(
    scheduler/target/aliquot-scheduler.jar
    device-plugin/target/aliquot-device-plugin.jar
    native-shim/build/libaliquot.so
    native-shim/build/VERSION
    native-shim/build/fake-driver/{libcuda.so.1,libnvidia-ml.so.1,nvidia-smi,aliquot-fake-driver,vgpu-sample}
)

aliquot_sources() {
    (cd "$root" && hash_of pom.xml .mvn api scheduler device-plugin native-shim)
}

# Sources and artifacts as the last build left them.
aliquot_state() {
    aliquot_sources
    (cd "$root" && stat -c '%n %s %Y' "${aliquot_artifacts[@]}")
}

build_aliquot() {
    cd "$root"
    # both switches: Maven's own plugins know the one, the native build the other
    ./mvnw -q -B -ntp -Dmaven.test.skip -DskipTests -Dspotless.check.skip package -pl scheduler,device-plugin,native-shim -am
    aliquot_state > "$root/scheduler/target/aliquot-build"
}

# What the benchmarks need of it.
build_scheduler() {
    cd "$root"
    ./mvnw -q -B -ntp -Dmaven.test.skip -DskipTests -Dspotless.check.skip package -pl scheduler -am
}

# Builds Aliquot's programs if their sources changed since the last time, or if somebody changed what was built.
build_aliquot_if_changed() {
    local stamp=$root/scheduler/target/aliquot-build
    [ -f "$stamp" ] && [ "$(aliquot_state 2> /dev/null)" = "$(cat "$stamp")" ] && return
    step aliquot "Building Aliquot (Maven, CMake)" contained build_aliquot
}
