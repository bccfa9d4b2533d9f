# shellcheck shell=bash
# What the machine must have, checked before anything else; Debian's missing packages are installed and named.

version_at_least() { # MINIMUM VERSION
    [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

# The JDK to build with: JAVA_HOME, else the javac on the PATH, else one of Debian's. Prints its home.
find_jdk() {
    local home version
    for home in "${JAVA_HOME:-}" "$(dirname "$(dirname "$(readlink -f "$(command -v javac || true)")")")" /usr/lib/jvm/*; do
        [ -x "$home/bin/javac" ] || continue
        version=$("$home/bin/javac" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
        [ "${version:-0}" -ge 17 ] || continue
        printf '%s' "$home"
        return
    done
    return 1
}

# Debian packages whose command or file is missing. What another package already provides (Docker's containerd.io, say)
# is left alone, since installing Debian's would remove it.
missing_packages() { # "PACKAGE COMMAND-OR-PATH" lines on standard input
    local package probe
    while read -r package probe; do
        case $probe in
            /*) compgen -G "$probe" > /dev/null || printf '%s\n' "$package" ;;
            *) command -v "$probe" > /dev/null || printf '%s\n' "$package" ;;
        esac
    done | sort -u
}

install_packages() { # WHAT FOR; "PACKAGE COMMAND-OR-PATH" lines on standard input
    local missing
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    # shellcheck disable=SC2086
    set -- "$1" $missing
    local for=$1
    shift
    if ! command -v apt-get > /dev/null; then
        die "$for needs programs that this machine lacks; here are Debian's names for the packages:" "$*" \
            "Install them with this system's package manager and try again."
    fi
    say "Installing system packages for $for: $*"
    mkdir -p "$lab/log"
    if ! {
        dpkg --configure -a &&
            { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" ||
                { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; }; }
    } > "$lab/log/packages.log" 2>&1 < /dev/null; then
        tail -n 15 "$lab/log/packages.log" | sed 's/^/    /' >&2
        die "the system packages could not be installed." "Install them yourself and try again: apt-get install $*"
    fi
}

# Checks that need nothing but bash, for every command that touches the machine.
check_machine() {
    [ "$(uname -s)" = Linux ] && [ "$(uname -m)" = x86_64 ] ||
        die "the lab needs Linux on x86-64; this is $(uname -s) on $(uname -m)."
    [ "$(id -u)" -eq 0 ] ||
        die "the lab needs root: it makes namespaces, mounts and cgroups." "Try: sudo ./aliquot ${command:-up}"
    [ -d /sys/fs/cgroup ] || die "the lab needs cgroups; /sys/fs/cgroup isn't there."
}

check_jdk() {
    if ! JAVA_HOME=$(find_jdk); then
        die "the build needs a JDK, version 17 or later; none was found in JAVA_HOME, on the PATH or in /usr/lib/jvm." \
            "On Debian: apt-get install openjdk-17-jdk-headless"
    fi
    export JAVA_HOME
}

check_go() {
    command -v go > /dev/null ||
        die "the lab builds Kubernetes, which needs Go 1.25 or later (or 1.21 and later, which fetches it); there is no 'go' on the PATH." \
            "On Debian: apt-get install golang-go (from backports), or see https://go.dev/doc/install"
    local version
    version=$(GOTOOLCHAIN=local go env GOVERSION)
    version_at_least 1.21 "${version#go}" ||
        die "the lab builds Kubernetes, which needs Go 1.25 or later (or 1.21 and later, which fetches it); this is ${version}." \
            "See https://go.dev/doc/install"
}

# Building Kubernetes takes about 4 GB on the way; images, in the cache and in the nodes, 3.
check_disk() {
    local folder free needed=3
    [ -x "$(kube_program)" ] || needed=7
    mkdir -p "$cache" "$lab"
    for folder in "$cache" "$lab"; do
        free=$(($(df --output=avail --block-size=1M "$folder" | tail -n 1) / 1000))
        [ "$free" -ge "$needed" ] ||
            die "the lab needs $needed GB of free disk space below $folder; there are $free." "Make room, or set XDG_CACHE_HOME to a folder elsewhere for the build cache."
    done
}

# Everything `up` needs. gcc: the fake driver, the shim and NVIDIA's runtime are linked to C.
check_prerequisites() {
    check_machine
    check_jdk
    check_go
    check_disk
    install_packages "the lab" <<-'END'
		containerd containerd
		containernetworking-plugins /usr/lib/cni/ptp
		runc runc
		iproute2 ip
		nftables nft
		openssl openssl
		mmdebstrap mmdebstrap
		debian-archive-keyring /usr/share/keyrings/debian-archive-keyring.gpg
		buildah buildah
		gcc gcc
		libc6-dev /usr/include/*/gnu/libc-version.h
		make make
		cmake cmake
	END
    # containernetworking-plugins: elsewhere than on Debian they live in /opt/cni/bin
}
