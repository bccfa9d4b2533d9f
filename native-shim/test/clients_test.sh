#!/bin/bash
# Programs that are not ours, under the shim: clients_test.sh SHIM STUB_FOLDER CASE [ARGUMENT]
set -u
shim=$1 stub=$2 case=$3 argument=${4-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
    echo "$case: $*" >&2
    exit 1
}
limit() {
    export ALIQUOT_CONFIG=$folder/vgpu ALIQUOT_REGION=$folder/region
    echo "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001 memory=$1Mi cores=0" >"$ALIQUOT_CONFIG"
    : >"$ALIQUOT_REGION"
}
shimmed() { LD_PRELOAD=$shim LD_LIBRARY_PATH=$stub "$@"; }

case $case in
ordinary_programs_run_byte_for_byte_the_same)
    limit 100
    echo nonsense >"$ALIQUOT_CONFIG" # whoever reads it says so on stderr
    cd / || exit 1
    for command in "bash -c 'echo \$((6*7)); exit 3'" "ls -l /usr" "cat /etc/passwd" "cat /nowhere" "git --version" \
        "python3 -c 'import ctypes, json, socket, subprocess; print(json.dumps(subprocess.check_output([\"id\"]).decode()))'" \
        "ls -l /proc/self/fd | wc -l" "cat /proc/self/status | grep Threads" "env -i true"; do
        eval "$command" >"$folder/bare" 2>&1
        echo "exit $?" >>"$folder/bare"
        (
            export LD_PRELOAD=$shim
            eval "$command" >"$folder/shimmed" 2>&1
            echo "exit $?" >>"$folder/shimmed"
        )
        cmp "$folder/bare" "$folder/shimmed" || fail "$command: $(cat "$folder/shimmed")"
    done
    ;;
ordinary_programs_make_no_further_system_call)
    command -v strace >/dev/null || {
        echo "skipped: strace is not installed (Debian: apt-get install strace)"
        exit 77
    }
    limit 100
    # Loading the library itself is the one trace it leaves.
    strace -f -o "$folder/trace" -E LD_PRELOAD="$shim" cat /etc/passwd >/dev/null || fail strace
    grep -E '^[0-9]+ +(clone3?|rt_sigaction|umask)\(|"/proc|"/(etc|usr/local)/aliquot' "$folder/trace" && fail "the above"
    grep -F -e "$ALIQUOT_CONFIG" -e "$ALIQUOT_REGION" "$folder/trace" && fail "the above"
    [ "$(grep -c "$shim" "$folder/trace")" = 1 ] || fail "$(grep "$shim" "$folder/trace")"
    ;;
a_directly_linked_program_is_limited)
    limit 100
    [ "$(shimmed "$argument" 100)" = 0 ] || fail "100 MiB should fit"
    [ "$(shimmed "$argument" 101)" = 2 ] || fail "101 MiB should not fit"
    ;;
python_ctypes_is_limited)
    limit 100
    shimmed python3 - <<'PYTHON' || fail "see above"
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
context, address, free, total = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_size_t()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(101 << 20)) == 2
assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(99 << 20)) == 0
assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
assert (free.value, total.value) == (1 << 20, 100 << 20), (free, total)
PYTHON
    ;;
a_program_without_a_driver_is_told_there_is_no_device)
    limit 100
    # Finds our cuInit in the global scope, although no driver is installed.
    [ "$(LD_PRELOAD=$shim "$argument-weakly" 1)" = 100 ] || fail "$(LD_PRELOAD=$shim "$argument-weakly" 1)"
    ;;
*)
    fail "no such case"
    ;;
esac
