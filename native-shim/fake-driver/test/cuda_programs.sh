#!/bin/bash
# cuda_programs.sh NVCC OUTPUT: compiles each cuda/*.cu with NVIDIA's nvcc in the folder NVCC (nvcc.txt) to
# OUTPUT/NAME-VERSION-LINKAGE, for libcudart 13 and 12, shared and static. nvcc 12 is not on PyPI, so nvcc 13 compiles
# against the headers and library of version 12. The programs are in the build cache, and OUTPUT links there; they are
# compiled again when a source, nvcc or the C++ compiler changes. Exits with 77 without nvcc or a C++ compiler.
set -eu
packages=$(readlink -f "$1") folder=$2
sources=$(cd "$(dirname "$0")/cuda" && pwd)
export CXX=${CXX:-g++}
if [ ! -e "$packages/installed" ] || ! command -v "$CXX" >/dev/null; then
    echo "skipped: no nvcc from PyPI in $packages, or no C++ compiler"
    exit 77
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/aliquot
output=$cache/cuda-programs-$( (cat "$0" "$sources"/* "$sources/../check.h" "$packages/installed" && "$CXX" --version) |
    sha256sum | cut -c1-16)
exec 9>"$output.lock"
flock 9
[ -L "$folder" ] || rm -rf "$folder"
ln -sfn "$output" "$folder"
[ ! -e "$output/complete" ] || exit 0
runtime_13=$packages/nvidia/cu13 runtime_12=$packages/nvidia/cuda_runtime

compile() { # VERSION SOURCE
    set -eu
    local folder=runtime_$1 name linkage
    name=$output/$(basename "$2" .cu)-$1
    "$runtime_13/bin/nvcc" -ccbin "$CXX" -arch=sm_80 -I"${!folder}/include" -c "$2" -o "$name.o"
    for linkage in shared static; do
        "$runtime_13/bin/nvcc" -ccbin "$CXX" -cudart $linkage -cudadevrt none -L"$output/lib$1" \
            "$name.o" -o "$name-$linkage"
    done
}
export packages output sources runtime_13 runtime_12
export -f compile

rm -rf "$output"
for version in 13 12; do
    mkdir -p "$output/lib$version"
    runtime=runtime_$version
    ln -sf "${!runtime}"/lib/libcudart* "$output/lib$version"
    ln -sf libcudart.so.$version "$output/lib$version/libcudart.so"
done
for source in "$sources"/*.cu; do
    printf '%s\n' 13 "$source" 12 "$source"
done | xargs -n 2 -P 2 bash -c 'compile "$@"' compile

# launch.cu again, as images that a program can load itself.
images=$output/images
mkdir -p "$images"
device() { "$runtime_13/bin/nvcc" -ccbin "$CXX" -I"$runtime_13/include" "$@" "$sources/launch.cu"; }
device -cubin -arch=sm_80 -o "$images/launch.cubin"
device -cubin -arch=sm_90 -o "$images/newer.cubin"
device -fatbin -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90] \
    -o "$images/launch.fatbin"
device -fatbin -arch=sm_80 -Xfatbin -compress-all -o "$images/launch.zstd"
device -fatbin -arch=compute_80 -compress-mode=speed -o "$images/launch.lz4"
device -ptx -arch=compute_80 -o "$images/launch.ptx"
: >"$output/complete"
