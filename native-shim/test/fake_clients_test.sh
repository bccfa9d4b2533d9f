#!/bin/bash
# Ready-made programs under the shim, in front of the fake driver:
# fake_clients_test.sh SHIM FAKE_ROOT SAMPLE CLIENTS CASE, with the driver's real clients from PyPI in the folder CLIENTS.
set -u
shim=$1 fake=$2 sample=$3 clients=$4 case=$5
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
    echo "$case: $*" >&2
    exit 1
}
export ALIQUOT_FAKE_GPUS=$fake/gpus ALIQUOT_CONFIG=$folder/vgpu ALIQUOT_REGION=$folder/region
shimmed() { LD_PRELOAD=$shim LD_LIBRARY_PATH=$fake/lib "$@"; }
# All GPUs are visible, the first in the listing is granted.
uuid=$(LD_LIBRARY_PATH=$fake/lib "$fake/bin/nvidia-smi" -L | grep -oE 'GPU-[0-9a-f-]+' | head -1)
[ -n "$uuid" ] || uuid=$(basename "$(find "$fake/gpus" -name 'GPU-*' | sort | head -1)")
echo "$uuid memory=3000Mi cores=30 policy=fixed priority=0 context=0Mi" >"$ALIQUOT_CONFIG"
: >"$ALIQUOT_REGION"
need_clients() {
    [ -e "$clients/installed" ] || {
        echo "skipped: no clients from PyPI in $clients"
        exit 77
    }
    export PYTHONPATH=$clients PYTHONDONTWRITEBYTECODE=1
}

case $case in
nvidia_smi_shows_the_share)
    shimmed "$fake/bin/nvidia-smi" >"$folder/out" || fail "$(cat "$folder/out")"
    grep -q '0MiB / 3000MiB' "$folder/out" || fail "$(cat "$folder/out")"
    ;;
the_sample_program_gets_2900_MiB_and_not_200_more)
    shimmed "$sample" alloc 2900 alloc 200 free alloc 200 >"$folder/out"
    diff "$folder/out" - <<'OUTPUT' || fail "see above"
alloc 2900 MiB: CUDA_SUCCESS
alloc 200 MiB: CUDA_ERROR_OUT_OF_MEMORY
free: CUDA_SUCCESS
alloc 200 MiB: CUDA_SUCCESS
OUTPUT
    ;;
pynvml_sees_the_share)
    need_clients
    shimmed python3 - "$uuid" <<'PYTHON' || fail "see above"
import sys
import pynvml

pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
for memory in pynvml.nvmlDeviceGetMemoryInfo(device), pynvml.nvmlDeviceGetMemoryInfo(device, pynvml.nvmlMemory_v2):
    assert (memory.total, memory.free, memory.used) == (3000 << 20, 3000 << 20, 0), memory
PYTHON
    ;;
cuda_bindings_are_limited)
    need_clients
    shimmed python3 - <<'PYTHON' || fail "see above"
from cuda.bindings import driver as cu


def must(answer):
    assert answer[0] == cu.CUresult.CUDA_SUCCESS, answer
    return answer[1:]


must(cu.cuInit(0))
(context,) = must(cu.cuDevicePrimaryCtxRetain(0))
must(cu.cuCtxSetCurrent(context))
(address,) = must(cu.cuMemAlloc(2900 << 20))
assert cu.cuMemAlloc(200 << 20)[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
assert must(cu.cuMemGetInfo()) == (100 << 20, 3000 << 20)
assert must(cu.cuDeviceTotalMem(0)) == (3000 << 20,)
must(cu.cuMemFree(address))
must(cu.cuMemAllocManaged(3000 << 20, 1))
PYTHON
    ;;
libcudart_comes_through_the_hooks)
    # Its cuInit is ours, by way of cuGetProcAddress, and no name that it looks up is left unplaced.
    need_clients
    export LD_LIBRARY_PATH=$fake/lib
    check() {
        [ "$(LD_PRELOAD=$shim "$@")" != 800 ] || fail "$*: not permitted"
        [ "$(od -A n -t u8 -j 128 -N 8 "$ALIQUOT_REGION" | tr -d ' ')" = 0 ] || fail "$*: unplaced addresses"
        LD_PRELOAD=$shim ALIQUOT_CONFIG=/dev/null "$@" >"$folder/out" 2>"$folder/err"
        [ "$(cat "$folder/out")" = 800 ] || fail "$*: $(cat "$folder/out") instead of cudaErrorNotPermitted"
        [ "$(grep -c ^aliquot: "$folder/err")" = 1 ] || fail "$*: $(cat "$folder/err")"
    }
    for library in "$clients"/nvidia/*/lib/libcudart.so.1?; do
        check python3 -c "import ctypes; print(ctypes.CDLL('$library').cudaGetDeviceCount(ctypes.byref(ctypes.c_int())))"
    done
    cat >"$folder/static.c" <<'PROGRAM'
#include <stdio.h>
int cudaGetDeviceCount(int *count);
int main(void) {
    int count;
    return printf("%d\n", cudaGetDeviceCount(&count)) < 0;
}
PROGRAM
    for library in "$clients"/nvidia/*/lib/libcudart_static.a; do
        ${CC:-cc} "$folder/static.c" "$library" -o "$folder/static" -lrt -lpthread -ldl -lstdc++ || fail "$library"
        check "$folder/static"
    done
    ;;
*)
    fail "no such case"
    ;;
esac
