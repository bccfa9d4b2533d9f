#!/bin/bash
# Compares the shim's declarations with NVIDIA's cuda.h or nvml.h: abi_check.sh SOURCE_FOLDER CLIENTS cuda|nvml.
# Skipped (77) if the machine has no such header.
compared=0
compile=("${CC:-cc}" -std=gnu11 -Wall -Werror -iquote "$1/src")
program=$(mktemp)
trap 'rm -f "$program"' EXIT
check_cuda() { # INCLUDE_FOLDER
    "${compile[@]}" -fsyntax-only -isystem "$1" "$source/test/abi_check.c"
}
check_nvml() {
    # A header without the newest of the shim's declarations is too old.
    grep -q nvmlAccountingStats_v2_t "$1/nvml.h" || return 0
    "${compile[@]}" "$source/test/nvml_abi_check.c" -o "$program" && shim_layouts=$("$program") &&
        "${compile[@]}" -DNVIDIA -isystem "$1" "$source/test/nvml_abi_check.c" -o "$program" &&
        diff <(echo "$shim_layouts") <("$program") && compared=1
}
source=$1
for folder in "${CUDA_HOME:-/usr/local/cuda}/include" "$2"/nvidia/*/include; do
    if [ -f "$folder/$3.h" ]; then
        echo "comparing with $folder/$3.h"
        "check_$3" "$folder" || exit 1
        [ "$3" = nvml ] || compared=1
    fi
done
[ $compared = 1 ] || {
    echo "skipped: neither CUDA_HOME, /usr/local/cuda nor $2 (PyPI) has a $3.h that is new enough"
    exit 77
}
