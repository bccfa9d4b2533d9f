#!/bin/bash
# Ready-made programs under the shim, in front of the fake driver: fake_clients_test.sh SHIM FAKE_ROOT SAMPLE CASE
set -u
shim=$1 fake=$2 sample=$3 case=$4
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
    python3 -c 'import pynvml' 2>/dev/null || {
        echo "skipped: pynvml is not installed (pip install nvidia-ml-py)"
        exit 77
    }
    shimmed python3 - "$uuid" <<'PYTHON' || fail "see above"
import sys
import pynvml

pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
for memory in pynvml.nvmlDeviceGetMemoryInfo(device), pynvml.nvmlDeviceGetMemoryInfo(device, pynvml.nvmlMemory_v2):
    assert (memory.total, memory.free, memory.used) == (3000 << 20, 3000 << 20, 0), memory
PYTHON
    ;;
libcudart_is_limited)
    library=$(python3 -c 'import glob, sysconfig; print((glob.glob(sysconfig.get_path("purelib") +
        "/nvidia/*/lib/libcudart.so.1[23]") + [""])[0])')
    [ -n "$library" ] || {
        echo "skipped: libcudart is not installed (pip install nvidia-cuda-runtime)"
        exit 77
    }
    shimmed python3 - "$library" <<'PYTHON' || fail "see above"
import ctypes
import sys

runtime = ctypes.CDLL(sys.argv[1])
address, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()


def allocate(mebibytes):
    return runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(mebibytes << 20))


assert allocate(2900) == 0
held = address.value
assert allocate(200) == 2
assert runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
assert (free.value >> 20, total.value >> 20) == (100, 3000), (free, total)
assert runtime.cudaFree(ctypes.c_void_p(held)) == 0
assert allocate(200) == 0
assert runtime.cudaDeviceReset() == 0
assert allocate(3000) == 0
PYTHON
    ;;
*)
    fail "no such case"
    ;;
esac
