#!/bin/bash
# Compares our declarations with NVIDIA's cuda.h: abi_check.sh SOURCE_FOLDER. Skipped (77) where there is none.
python_headers=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null)/nvidia
for folder in "${CUDA_HOME:-/usr/local/cuda}/include" "$python_headers"/cu1?/include "$python_headers"/cuda_runtime/include; do
    if [ -f "$folder/cuda.h" ]; then
        echo "comparing with $folder/cuda.h"
        exec "${CC:-cc}" -std=gnu11 -Wall -Werror -fsyntax-only -iquote "$1/src" -isystem "$folder" "$1/test/abi_check.c"
    fi
done
echo "skipped: no cuda.h (pip install nvidia-cuda-runtime, or set CUDA_HOME)"
exit 77
