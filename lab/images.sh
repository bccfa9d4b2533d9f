# shellcheck shell=bash
# Builds the container images that the lab's nodes run, without a registry: Aliquot's by layers.sh, as a release does, and
# those of the tests with buildah on a base image of Debian's packages. The cache holds them under the hash of their inputs.

base_image=docker.io/library/debian:trixie-slim

# Prints the files of the checkout that an image is made of, the Dockerfile first if it has one. The build context contains
# only these.
image_inputs() {
    case $1 in
        pause) printf '%s\n' lab/images/pause/Dockerfile lab/images/pause/pause.c ;;
        kube-scheduler) printf '%s\n' lab/images/kube-scheduler/Dockerfile ;;
        sample) printf '%s\n' lab/images/sample/Dockerfile native-shim/build/fake-driver/vgpu-sample ;;
        nvidia-device-plugin) printf '%s\n' lab/images/nvidia-device-plugin/Dockerfile ;;
        conformance-*) printf '%s\n' lab/images/conformance/{Dockerfile,curl} ;;
        aliquot-*) our_image_inputs "$1" amd64 ;;
    esac
}

base_file() { printf '%s/images/base-%s.tar' "$cache" "$(declare -f build_base | sha256sum | cut -c1-16)"; }

image_hash() { # NAME
    local -a inputs
    if is_our_image "$1"; then
        our_image_hash "$1" amd64
        return
    fi
    mapfile -t inputs < <(image_inputs "$1")
    cd "$root"
    {
        find "${inputs[@]}" -type f -printf '%p\0' | LC_ALL=C sort -z | xargs -0r sha256sum
        case $1 in
            kube-scheduler) cluster_programs ;;
            nvidia-device-plugin) nvidia_plugin_programs; base_file ;;
            conformance-*) conformance_programs; base_file ;;
            *) base_file ;;
        esac
        declare -f build_image buildah_
    } | sha256sum | cut -c1-16
}

image_name() { printf 'docker.io/aliquot-lab/%s:lab' "$1"; }
image_file() { printf '%s/images/%s-%s.tar' "$cache" "$1" "$(image_hash "$1")"; }

# buildah with separate storage and configuration. Its mounts end with the step's mount namespace.
buildah_() {
    local config=$cache/images/config
    mkdir -p "$config"
    printf '{"default": [{"type": "insecureAcceptAnything"}]}' > "$config/policy.json"
    printf 'unqualified-search-registries = []\n' > "$config/registries.conf"
    printf '[storage]\ndriver = "overlay"\ngraphroot = "%s"\nrunroot = "/run/aliquot-containers"\n' "$cache/images/storage" > "$config/storage.conf"
    CONTAINERS_STORAGE_CONF=$config/storage.conf CONTAINERS_REGISTRIES_CONF=$config/registries.conf \
        TMPDIR=$cache/images/tmp BUILDAH_ISOLATION=chroot buildah "$@"
}

# with_storage discards buildah's storage if a build was killed, after which buildah can refuse it, or if unused layers
# have accumulated in it. Rebuilding it takes minutes.
storage_size() { # MiB
    [ -d "$cache/images/storage" ] || { echo 0; return; }
    du -s --block-size=1M "$cache/images/storage" | cut -f 1
}

with_storage() {
    mkdir -p "$cache/images/tmp"
    mount -t tmpfs -o mode=755 tmpfs /run # runroot; and whatever else it leaves there ends with this step
    if [ -e "$cache/images/building" ] || [ "$(storage_size)" -gt 6000 ]; then
        rm -rf "$cache/images/storage" "$cache/images/tmp"/*
    fi
    : > "$cache/images/building"
    "$@"
    rm -f "$cache/images/building"
}

# Debian's essential packages and apt, without documentation and translations.
build_base() {
    local file
    file=$(base_file)
    [ ! -f "$file" ] || return 0
    mkdir -p "$cache/images"
    rm -f "$cache/images/new-base.tar"
    mmdebstrap --variant=minbase \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/lintian/*' \
        trixie "$cache/images/new-base.tar"
    rm -f "$cache"/images/base-*.tar
    publish "$cache/images/new-base.tar" "$file"
}

import_base() { # into buildah's storage, unless it is there
    local tag container
    tag=docker.io/aliquot-lab/base:$(basename "$(base_file)" .tar)
    if ! buildah_ inspect --type image "$tag" > /dev/null 2>&1; then
        container=$(buildah_ from scratch)
        buildah_ add --quiet "$container" "$(base_file)" /
        buildah_ config --cmd bash "$container"
        buildah_ commit --quiet --rm "$container" "$tag"
    fi
    buildah_ tag "$tag" "$base_image"
}

build_our_image() { # NAME FILE
    local layout=$cache/images/tmp/layout
    write_layout "$1" "$layout" amd64
    # The name that containerd gives an imported image
    sed -i "s#\"platform\"#\"annotations\":{\"io.containerd.image.name\":\"$(image_name "$1")\"},&#" "$layout/index.json"
    tar --create --directory "$layout" --file "$2.tmp" .
    publish_image "$1" "$2"
    rm -rf "$layout"
}

# Deletes images of this name that no build has used for two hours. Another checkout may still load younger ones.
publish_image() { # NAME FILE
    find "$cache/images" -maxdepth 1 -name "$1-*.tar" -mmin +120 -delete
    publish "$2.tmp" "$2"
}

build_image() { # NAME FILE
    local name=$1 file=$2 context=$cache/images/tmp/context dockerfile input
    local -a inputs target=()
    rm -rf "$context"
    mkdir -p "$context"
    mapfile -t inputs < <(image_inputs "$name")
    dockerfile=${inputs[0]}
    cd "$root"
    for input in "${inputs[@]}"; do cp -a --parents "$input" "$context"; done
    case $name in
        pause) gcc -Wall -Wextra -Werror -Os -s -static -o "$context/pause" lab/images/pause/pause.c ;;
        kube-scheduler) cp "$(cluster_programs)/kube-scheduler" "$context" ;;
        nvidia-device-plugin) cp "$(nvidia_plugin_programs)"/* "$context" ;;
        conformance-*) cp "$(conformance_programs)"/{agnhost,localhost.*} "$context"; target=(--target "${name#*-}") ;;
    esac
    grep -q "^FROM $base_image" "$dockerfile" && import_base
    buildah_ bud --layers --pull-never "${target[@]}" --file "$context/$dockerfile" --tag "$(image_name "$name")" "$context"
    rm -f "$file.tmp"
    buildah_ push --quiet "$(image_name "$name")" "docker-archive:$file.tmp:$(image_name "$name")"
    publish_image "$name" "$file"
    rm -rf "$context"
}

check_inputs() { # NAME
    local input
    for input in $(image_inputs "$1"); do
        [ -e "$root/$input" ] || die "there is no $input, an input of image $1." "Build it: ./aliquot up (without --no-build and ALIQUOT_BUILT), or ./mvnw package"
    done
}

# Builds those of the images that the cache lacks.
build_images() { # NAME...
    local name file
    lock_cache
    mkdir -p "$cache/images/tmp"
    if [ ! -f "$(base_file)" ]; then
        step base "Making a Debian base image, once; about 1 minute" contained build_base
    fi
    for name in "$@"; do
        check_inputs "$name"
        file=$(image_file "$name")
        touch -c "$file" # in use, see build_image
        [ ! -f "$file" ] || continue
        if is_our_image "$name"; then
            step "image-$name" "Building image $name" contained build_our_image "$name" "$file"
        else
            step "image-$name" "Building image $name" contained with_storage build_image "$name" "$file"
        fi
    done
    unlock_cache
}

# --- into the nodes -------------------------------------------------------------------------------------------------

import_image() { # NODE FILE
    in_node "$1" ctr --namespace k8s.io images import - < "$2" > /dev/null
}

# Imports images into the nodes that lack them, in parallel.
load_images() { # NAME...
    local name file node mark pid status=0
    local -a pids
    for name in "$@"; do
        file=$(image_file "$name")
        pids=()
        for node in "${nodes[@]}"; do
            mark=$lab/$node/images/$(basename "$file" .tar)
            [ ! -f "$mark" ] || continue
            mkdir -p "$(dirname "$mark")"
            { import_image "$node" "$file" && : > "$mark"; } &
            pids+=($!)
        done
        for pid in "${pids[@]}"; do wait "$pid" || status=1; done
    done
    return "$status"
}

load_images_in_lab() { find_lab && load_images "$@"; }
