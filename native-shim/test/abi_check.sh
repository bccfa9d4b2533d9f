#!/bin/bash
# Compares our declarations with NVIDIA's cuda.h: abi_check.sh SOURCE_FOLDER CLIENTS. Skipped (77) where there is none.
compared=0
for folder in "${CUDA_HOME:-/usr/local/cuda}/include" "$2"/nvidia/*/include; do
    if [ -f "$folder/cuda.h" ]; then
        echo "comparing with $folder/cuda.h"
        "${CC:-cc}" -std=gnu11 -Wall -Werror -fsyntax-only -iquote "$1/src" -isystem "$folder" "$1/test/abi_check.c" ||
            exit 1
        compared=1
    fi
done
[ $compared = 1 ] || {
    echo "skipped: no cuda.h in CUDA_HOME or /usr/local/cuda, nor from PyPI in $2"
    exit 77
}
