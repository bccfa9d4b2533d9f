#!/bin/bash
# Runs existing programs with the shim on the fake driver: fake_clients_test.sh SHIM FAKE_ROOT SAMPLE CLIENTS CASE.
# The folder CLIENTS holds NVIDIA's packages from PyPI.
set -u
shim=$1 fake=$2 sample=$3 clients=$4 case=$5
folder=$(mktemp -d)
# A process that a failed check left running would keep the output open, and CTest would wait for it.
trap 'kill -9 $(jobs -p) 2>/dev/null; rm -rf "$folder"' EXIT
fail() {
    echo "$case: $*" >&2
    exit 1
}
cp -r --sparse=always "$fake/gpus" "$folder/gpus" # other tests run at the same time
export ALIQUOT_FAKE_GPUS=$folder/gpus ALIQUOT_CONFIG=$folder/vgpu ALIQUOT_REGION=$folder/region
shimmed() { LD_PRELOAD=$shim LD_LIBRARY_PATH=$fake/lib "$@"; }
# All GPUs are visible; the limit file grants the first.
uuid=$(LD_LIBRARY_PATH=$fake/lib "$fake/bin/nvidia-smi" -L | grep -oE 'GPU-[0-9a-f-]+' | head -1)
[ -n "$uuid" ] || uuid=$(basename "$(find "$folder/gpus" -name 'GPU-*' | sort | head -1)")
echo "$uuid memory=3000Mi cores=30 policy=fixed context=0Mi" >"$ALIQUOT_CONFIG"
: >"$ALIQUOT_REGION"
need_clients() {
    [ -e "$clients/installed" ] || {
        echo "skipped: $clients has no packages from PyPI"
        exit 77
    }
    export PYTHONPATH=$clients PYTHONDONTWRITEBYTECODE=1
}

case $case in
nvidia_smi_shows_the_share)
    shimmed "$fake/bin/nvidia-smi" >"$folder/out" || fail "$(cat "$folder/out")"
    grep -q '0MiB / 3000MiB' "$folder/out" || fail "$(cat "$folder/out")"
    ;;
nvidia_smi_shows_utilization_relative_to_the_share)
    # A program that wants more than its 30 % of the GPU shows full utilization of the share; after its end, none.
    utilization() { "$@" "$fake/bin/nvidia-smi" -i "$uuid" --query-gpu=utilization.gpu --format=csv,noheader,nounits; }
    for try in 1 2 3; do # on a busy machine the sample may launch so late that the GPU idles
        shimmed "$sample" alloc 100 busy 3 >"$folder/busy" &
        until [ "$(grep -c '^busy:' "$folder/busy")" -ge 2 ]; do sleep 0.05; done
        share_utilization=$(utilization shimmed) gpu_utilization=$(LD_LIBRARY_PATH=$fake/lib utilization env)
        wait $!
        sleep 1.2
        [ "$share_utilization" -lt 80 ] || break
        echo "attempt $try: $share_utilization % of the share"
    done
    [ "$share_utilization" -ge 80 ] && [ "$gpu_utilization" -le 50 ] ||
        fail "expected at least 80 % of the share, at most 50 % of the GPU: $share_utilization %, $gpu_utilization %"
    [ "$(utilization shimmed)" = 0 ] || fail "$(utilization shimmed) % while no program uses the GPU"
    ;;
nvidia_smi_lists_the_containers_processes_with_container_PIDs)
    unshare --pid --fork --mount-proc true 2>"$folder/err" || {
        echo "skipped: cannot create a PID namespace: $(cat "$folder/err")"
        exit 77
    }
    # A process outside the container uses the same GPU; nvidia-smi in the container must not list it.
    LD_LIBRARY_PATH=$fake/lib "$sample" alloc 700 hold >"$folder/outsider" &
    outsider=$!
    until [ -s "$folder/outsider" ]; do sleep 0.01; done
    export LD_PRELOAD=$shim LD_LIBRARY_PATH=$fake/lib sample fake folder
    # shellcheck disable=SC2016
    unshare --pid --fork --kill-child --mount-proc bash -c '
        "$sample" alloc 1000 hold >"$folder/one" & one=$!
        "$sample" alloc 24 hold >"$folder/two" & two=$!
        until [ -s "$folder/one" ] && [ -s "$folder/two" ]; do sleep 0.01; done
        echo "$one, 1000
$two, 24" | sort -n >"$folder/expected"
        "$fake/bin/nvidia-smi" >"$folder/table"
        "$fake/bin/nvidia-smi" --query-compute-apps=pid,used_memory --format=csv,noheader,nounits |
            sort -n >"$folder/apps"
        kill -9 $one
        wait $one
        "$fake/bin/nvidia-smi" --query-compute-apps=pid,used_memory --format=csv,noheader,nounits >"$folder/after"
        echo "$two, 24" | diff - "$folder/after"' >"$folder/out" 2>&1 || fail "$(cat "$folder/out")"
    kill -9 $outsider
    unset LD_PRELOAD
    diff "$folder/expected" "$folder/apps" || fail "the expected processes (<) and --query-compute-apps (>) differ"
    grep -q '1024MiB / 3000MiB' "$folder/table" || fail "$(cat "$folder/table")"
    while IFS=', ' read -r pid mib; do
        grep -qE "^\| +[0-9]+ +$pid .*vgpu-sample +${mib}MiB" "$folder/table" || fail "$(cat "$folder/table")"
    done <"$folder/expected"
    [ "$(grep -c vgpu-sample "$folder/table")" = 2 ] || fail "$(cat "$folder/table")"
    ;;
the_sample_program_gets_2900_MiB_and_not_200_more)
    shimmed "$sample" alloc 2900 alloc 200 free alloc 200 >"$folder/out"
    diff "$folder/out" - <<'OUTPUT' || fail "the program above failed"
alloc 2900 MiB: CUDA_SUCCESS
alloc 200 MiB: CUDA_ERROR_OUT_OF_MEMORY
free: CUDA_SUCCESS
alloc 200 MiB: CUDA_SUCCESS
OUTPUT
    ;;
pynvml_sees_the_share)
    need_clients
    shimmed python3 - "$uuid" <<'PYTHON' || fail "the program above failed"
import sys
import pynvml

pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
for memory in pynvml.nvmlDeviceGetMemoryInfo(device), pynvml.nvmlDeviceGetMemoryInfo(device, pynvml.nvmlMemory_v2):
    assert (memory.total, memory.free, memory.used) == (3000 << 20, 3000 << 20, 0), memory
PYTHON
    ;;
pynvml_sees_the_containers_processes)
    need_clients
    shimmed python3 - "$uuid" "$sample" <<'PYTHON' || fail "the program above failed"
import os
import subprocess
import sys
import pynvml as nvml

uuid, program = sys.argv[1:]
outsider = subprocess.Popen([program, "alloc", "700", "hold"], stdout=subprocess.PIPE,
                            env={name: value for name, value in os.environ.items() if "LD_PRELOAD" != name})
samples = [subprocess.Popen([program, "alloc", str(mib), "hold"], stdout=subprocess.PIPE) for mib in (100, 20)]
try:
    for sample in samples + [outsider]:
        assert b"CUDA_SUCCESS" in sample.stdout.readline()
    nvml.nvmlInit()
    device = nvml.nvmlDeviceGetHandleByUUID(uuid)
    assert nvml.nvmlDeviceGetMemoryInfo(device).used == 120 << 20
    expected = sorted((sample.pid, mib << 20) for sample, mib in zip(samples, (100, 20)))
    for processes in (nvml.nvmlDeviceGetComputeRunningProcesses_v2(device),
                      nvml.nvmlDeviceGetComputeRunningProcesses_v3(device),
                      nvml.nvmlDeviceGetRunningProcessDetailList(device, nvml.nvmlProcessDetailList_v1, 0)):
        assert sorted((p.pid, p.usedGpuMemory) for p in processes) == expected, processes
    assert nvml.nvmlDeviceGetGraphicsRunningProcesses(device) == []
    assert nvml.nvmlDeviceGetMPSComputeRunningProcesses(device) == []
    assert nvml.nvmlDeviceGetUtilizationRates(device).gpu == 0
    for query in nvml.nvmlDeviceGetProcessUtilization, nvml.nvmlDeviceGetProcessesUtilizationInfo:
        try:
            assert not query(device, 0), "no process has launched a kernel"
        except nvml.NVMLError_NotFound:
            pass
    assert nvml.nvmlDeviceGetAccountingMode(device) == nvml.NVML_FEATURE_ENABLED
    assert sorted(nvml.nvmlDeviceGetAccountingPids(device)) == [pid for pid, _ in expected]
    stats = nvml.nvmlDeviceGetAccountingStats(device, samples[0].pid)
    assert stats.maxMemoryUsage == 100 << 20 and stats.isRunning == 1, stats.maxMemoryUsage
    samples[0].kill()
    samples[0].wait()
    assert [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(device)] == [samples[1].pid]
finally:
    for sample in samples + [outsider]:
        sample.kill()
PYTHON
    ;;
cuda_bindings_are_limited)
    need_clients
    shimmed python3 - <<'PYTHON' || fail "the program above failed"
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
libcudart_calls_the_hooks)
    # libcudart finds the shim's cuInit by cuGetProcAddress, and looks up no function that the shim cannot identify.
    need_clients
    export LD_LIBRARY_PATH=$fake/lib
    check() {
        [ "$(LD_PRELOAD=$shim "$@")" != 800 ] || fail "$*: cudaErrorNotPermitted with a valid limit file"
        [ "$(od -A n -t u8 -j 128 -N 8 "$ALIQUOT_REGION" | tr -d ' ')" = 0 ] || fail "$*: unhooked_functions is not 0"
        LD_PRELOAD=$shim ALIQUOT_CONFIG=/dev/null "$@" >"$folder/out" 2>"$folder/err"
        [ "$(cat "$folder/out")" = 800 ] || fail "$*: $(cat "$folder/out") instead of cudaErrorNotPermitted"
        [ "$(grep -c ^aliquot: "$folder/err")" = 1 ] || fail "$*: $(cat "$folder/err")"
    }
    for library in "$clients"/nvidia/*/lib/libcudart.so.1?; do
        check python3 -c \
            "import ctypes; print(ctypes.CDLL('$library').cudaGetDeviceCount(ctypes.byref(ctypes.c_int())))"
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
    fail "unknown case"
    ;;
esac
