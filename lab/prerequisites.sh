# shellcheck shell=bash
# Checks that the machine has what the lab needs, and installs missing Debian packages.

version_at_least() { # MINIMUM VERSION
    [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

# --- JDK and Go -----------------------------------------------------------------------------------------------------

jdk_minimum=21

# The version of the JDK in a folder, such as 21.0.11 or 25; nothing if the folder holds no JDK.
jdk_version() { # HOME
    if [ -x "$1/bin/javac" ]; then "$1/bin/javac" -version 2>&1 | sed -n 's/^javac \([0-9][0-9.]*\).*/\1/p'; fi
}

# Prints the home of the newest JDK in JAVA_HOME, on the PATH and in a folder of JDKs; fails if all are older than
# jdk_minimum. A newer JDK wins over an older JAVA_HOME; of equal versions the first in that order wins.
find_jdk() { # FOLDER OF JDKS
    local home version newest='' found='' javac
    javac=$(readlink -f "$(command -v javac || echo /none)")
    for home in "${JAVA_HOME:-}" "${javac%/bin/javac}" "$1"/*; do
        version=$(jdk_version "$home")
        [ -n "$version" ] && version_at_least "$jdk_minimum" "$version" || continue
        if [ -n "$newest" ] && version_at_least "$version" "$newest"; then continue; fi
        newest=$version found=$home
    done
    [ -n "$found" ] && printf '%s' "$found"
}

# The version that apt would install, without its epoch; nothing where apt knows no such package.
candidate_version() { # PACKAGE
    ! command -v apt-cache > /dev/null ||
        LC_ALL=C apt-cache policy "$1" | sed -n 's/^  Candidate: \([0-9]*:\)\{0,1\}\([0-9][0-9.]*\).*/\2/p'
}

# Prints the first of these packages whose candidate version is new enough; fails if there is none.
offered_package() { # MINIMUM PACKAGE...
    local minimum=$1 package version
    shift
    for package in "$@"; do
        version=$(candidate_version "$package")
        [ -n "$version" ] && version_at_least "$minimum" "$version" || continue
        printf '%s' "$package"
        return
    done
    return 1
}

# The same after an update of the package lists, which a fresh container image lacks.
offered_package_now() { # MINIMUM PACKAGE...
    offered_package "$@" && return
    command -v apt-get > /dev/null || return 1
    apt-get update > /dev/null 2>&1 < /dev/null || true
    offered_package "$@"
}

# Prints the Debian packages whose command or file is missing. A command that another package provides (such as Docker's
# containerd.io) counts, since apt would remove that package to install Debian's.
missing_packages() { # "PACKAGE COMMAND-OR-PATH" lines on standard input
    local package probe
    while read -r package probe; do
        case $probe in
            /*) compgen -G "$probe" > /dev/null || printf '%s\n' "$package" ;;
            *) command -v "$probe" > /dev/null || printf '%s\n' "$package" ;;
        esac
    done | sort -u
}

install_missing_packages() { # WHAT FOR; "PACKAGE COMMAND-OR-PATH" lines on standard input
    local missing
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    # shellcheck disable=SC2086
    install_packages "$1" $missing
}

install_packages() { # WHAT FOR, PACKAGE...
    local purpose=$1
    shift
    if ! command -v apt-get > /dev/null; then
        die "$purpose needs programs that this machine lacks. Debian's packages for them are:" "$*" \
            "Install them with this system's package manager and try again."
    fi
    say "Installing system packages for $purpose: $*"
    mkdir -p "$lab/log"
    if ! {
        dpkg --configure -a &&
            { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" ||
                { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; }; }
    } > "$lab/log/packages.log" 2>&1 < /dev/null; then
        tail -n 15 "$lab/log/packages.log" | sed 's/^/    /' >&2
        die "apt-get could not install the system packages." "Install them yourself and try again: apt-get install $*"
    fi
}

# Checks that need only bash, for every command that changes the machine
check_machine() {
    [ "$(uname -s)" = Linux ] && [ "$(uname -m)" = x86_64 ] ||
        die "the lab needs Linux on x86-64; this is $(uname -s) on $(uname -m)."
    [ "$(id -u)" -eq 0 ] ||
        die "the lab needs root: it makes namespaces, mounts and cgroups." "Try: sudo ./aliquot ${command:-up}"
    [ -d /sys/fs/cgroup ] || die "the lab needs cgroups; /sys/fs/cgroup does not exist."
}

# Java in this shell and its children is the JDK that find_jdk chooses.
check_jdk() {
    local home package
    if ! home=$(find_jdk /usr/lib/jvm); then
        package=$(offered_package_now "$jdk_minimum" openjdk-25-jdk-headless openjdk-21-jdk-headless) ||
            die "install a JDK of version $jdk_minimum or later, for example Eclipse Temurin 25 from https://adoptium.net: there is none in JAVA_HOME, on the PATH or in /usr/lib/jvm, and apt offers none."
        install_packages "the build" "$package"
        home=$(find_jdk /usr/lib/jvm) || die "$package is installed, but /usr/lib/jvm holds no JDK of version $jdk_minimum or later." \
            "Set JAVA_HOME to one and try again."
    fi
    export JAVA_HOME=$home PATH=$home/bin:$PATH
}

go_minimum=1.21 # the first version that fetches the one which lab/kube/go.mod names

# The version of the go on the PATH; nothing if there is none.
go_version() { ! command -v go > /dev/null || GOTOOLCHAIN=local go env GOVERSION | sed 's/^go//'; }

check_go() {
    local version package
    version=$(go_version)
    [ -n "$version" ] && version_at_least "$go_minimum" "$version" && return
    # An old Go that comes first on the PATH would hide the package.
    [ -z "$version" ] && package=$(offered_package_now "$go_minimum" golang-go) ||
        die "install Go 1.25 or later (or $go_minimum and later, which fetches it) from https://go.dev/doc/install, to build Kubernetes for the lab: the PATH has ${version:+version }${version:-none}, and apt none that could replace it."
    install_packages "the lab" "$package"
}

# Building Kubernetes takes about 4 GB temporarily; images take 3 GB in the cache and in the nodes.
check_disk() {
    local folder free needed=3
    [ -d "$(cluster_programs)" ] || needed=7
    mkdir -p "$cache" "$lab"
    for folder in "$cache" "$lab"; do
        free=$(($(df --output=avail --block-size=1M "$folder" | tail -n 1) / 1000))
        [ "$free" -ge "$needed" ] ||
            die "the lab needs $needed GB of free disk space below $folder; there are $free GB." "Free some, or set XDG_CACHE_HOME to a folder elsewhere for the build cache."
    done
}

# Everything that `up` needs. gcc builds the simulated driver, the shim and the cgo parts of runc and NVIDIA's runtime.
check_prerequisites() {
    check_machine
    check_jdk
    check_go
    check_disk
    install_missing_packages "the lab" <<-'END'
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
		libzstd-dev /usr/include/zstd.h
		liblz4-dev /usr/include/lz4.h
		libseccomp-dev /usr/include/seccomp.h
		pkg-config pkg-config
	END
    [ -z "${ALIQUOT_BINARIES:-}" ] || install_missing_packages "the official binaries" <<-'END'
		curl curl
		ca-certificates /etc/ssl/certs/ca-certificates.crt
	END
}
