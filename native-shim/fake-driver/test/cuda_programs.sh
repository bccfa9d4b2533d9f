#!/bin/bash
# cuda_programs.sh NVCC OUTPUT: compiles each cuda/*.cu with NVIDIA's nvcc in the folder NVCC (nvcc.txt) to
# OUTPUT/NAME-VERSION-LINKAGE, for libcudart 13 and 12, shared and static. nvcc 12 is not on PyPI, so nvcc 13 compiles
# against the headers and library of version 12. Compiles only programs that are older than their sources. Exits with 77
# without nvcc or a C++ compiler.
set -eu
packages=$1 output=$2
sources=$(cd "$(dirname "$0")/cuda" && pwd)
if [ ! -e "$packages/installed" ] || ! command -v "${CXX:-g++}" >/dev/null; then
    echo "skipped: no nvcc from PyPI in $packages, or no C++ compiler"
    exit 77
fi
runtime_13=$packages/nvidia/cu13 runtime_12=$packages/nvidia/cuda_runtime

compile() { # VERSION SOURCE
    set -eu
    local folder=runtime_$1 name linkage
    name=$output/$(basename "$2" .cu)-$1
    for newer in "$2" "$sources/program.h" "$sources/../check.h" "$packages/installed"; do
        if [ ! "$name-static" -nt "$newer" ]; then
            "$runtime_13/bin/nvcc" -ccbin "${CXX:-g++}" -arch=sm_80 -I"${!folder}/include" -c "$2" -o "$name.o"
            for linkage in shared static; do
                "$runtime_13/bin/nvcc" -ccbin "${CXX:-g++}" -cudart $linkage -cudadevrt none -L"$output/lib$1" \
                    "$name.o" -o "$name-$linkage"
            done
            break
        fi
    done
}
export packages output sources runtime_13 runtime_12
export -f compile

for version in 13 12; do
    mkdir -p "$output/lib$version"
    folder=runtime_$version
    ln -sf "${!folder}"/lib/libcudart* "$output/lib$version"
    ln -sf libcudart.so.$version "$output/lib$version/libcudart.so"
done
for source in "$sources"/*.cu; do
    printf '%s\n' 13 "$source" 12 "$source"
done | xargs -n 2 -P 2 bash -c 'compile "$@"' compile

# launch.cu again, as images that a program can load itself.
images=$output/images
if [ ! "$images/launch.ptx" -nt "$sources/launch.cu" ] || [ ! -e "$images/launch.lz4" ]; then
    mkdir -p "$images"
    device() { "$runtime_13/bin/nvcc" -ccbin "${CXX:-g++}" -I"$runtime_13/include" "$@" "$sources/launch.cu"; }
    device -cubin -arch=sm_80 -o "$images/launch.cubin"
    device -cubin -arch=sm_90 -o "$images/newer.cubin"
    device -fatbin -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90] \
        -o "$images/launch.fatbin"
    device -fatbin -arch=sm_80 -Xfatbin -compress-all -o "$images/launch.zstd"
    device -fatbin -arch=compute_80 -compress-mode=speed -o "$images/launch.lz4"
    device -ptx -arch=compute_80 -o "$images/launch.ptx"
fi
