#!/bin/bash
# real_drivers.sh FOLDER SUITE...: puts NVIDIA's driver libraries from the Debian releases SUITE into FOLDER/SUITE,
# libcuda and NVML of one version each. Debian's signature is verified. Nothing is installed: the packages are unpacked
# into the user's build cache, and FOLDER/SUITE links there. Exits with 77 if Debian's archive is unreachable.
set -u
folder=$1
shift
cache=${XDG_CACHE_HOME:-$HOME/.cache}/aliquot/drivers
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
skip() {
    echo "skipped: $*"
    exit 77
}

# Package lists of their own: the machine's sources stay as they are.
fetch() { # SUITE FOLDER
    local apt=$2/apt package
    mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$2/root"
    : >"$apt/status"
    cat >"$apt/debian.sources" <<END
Types: deb
URIs: http://deb.debian.org/debian
Suites: $1
Components: non-free
Signed-By: $keyring
END
    local -a options=(-qq -o "Dir::Etc::SourceList=$apt/debian.sources" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State=$apt/state" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache"
        -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User=root
        -o Acquire::Languages=none -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o APT::Update::Error-Mode=any)
    apt-get "${options[@]}" update && (cd "$apt" && apt-get "${options[@]}" download libcuda1 libnvidia-ml1) || return 1
    for package in "$apt"/*.deb; do
        dpkg -x "$package" "$2/root" || return 1
    done
    rm -rf "$apt"
    find "$2/root" -path '*/nvidia/current/lib*.so.*' -exec mv -t "$2" {} +
    rm -rf "$2/root"
    [ -e "$2/libcuda.so.1" ] && [ -e "$2/libnvidia-ml.so.1" ]
}

mkdir -p "$folder" "$cache" || exit 1
exec 9>"$cache/lock"
flock --timeout 240 9 || skip "another process fills $cache"
for suite in "$@"; do
    if [ ! -e "$cache/$suite/libcuda.so.1" ]; then
        command -v apt-get >/dev/null && command -v dpkg >/dev/null || skip "apt-get or dpkg is not installed"
        [ -e "$keyring" ] || skip "$keyring is missing (Debian: apt-get install debian-archive-keyring)"
        new=$cache/$suite.new
        rm -rf "$new"
        fetch "$suite" "$new" || {
            rm -rf "$new"
            skip "NVIDIA's driver libraries cannot be fetched from Debian's $suite, non-free"
        }
        rm -rf "${cache:?}/$suite"
        mv "$new" "$cache/$suite"
    fi
    ln -sfn "$cache/$suite" "$folder/$suite"
    echo "$suite: $(readlink "$folder/$suite/libcuda.so.1")"
done
