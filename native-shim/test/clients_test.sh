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

# A repository, made the same each time, and its history.
git_session='git init --quiet $folder/repository && cd $folder/repository && echo text >file &&
    git add file && git commit --quiet --message first && git log --stat --format=fuller'
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 HOME=$folder
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=c GIT_COMMITTER_EMAIL=c@d
export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
has() { command -v "$1" >/dev/null; }
# The interpreter itself and not a wrapper that looks for one.
python=$(python3 -c 'import sys; print(sys.executable)')
java='java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -version'

# Counts the system calls of a program by name, as if its addresses were always the same.
count_calls() { # TRACE [strace's options] COMMAND
    local trace=$1
    shift
    rm -rf "$folder/repository"
    PYTHONHASHSEED=0 setarch -R strace -f -o "$trace" "$@" >/dev/null 2>&1
    sed -E 's/^[0-9]+ +//' "$trace" | grep -oE '^[a-z0-9_]+\(' | sort | uniq -c | awk '{print $2, $1}'
}
# Three times at most: what differs by itself now and then (random names, a thread more) is not the shim's doing.
repeatedly() { "$@" || "$@" || "$@"; }
# What COMMAND does more under the shim than without: nothing but the loader's opening and mapping of one more library,
# in each program that is started.
check_calls() { # COMMAND
    local images
    count_calls "$folder/trace-bare" bash -c "$1" >"$folder/calls-bare"
    count_calls "$folder/trace" -E LD_PRELOAD="$shim" bash -c "$1" >"$folder/calls"
    grep -F -e /etc/aliquot -e /usr/local/aliquot -e "$ALIQUOT_CONFIG" -e "$ALIQUOT_REGION" "$folder/trace" &&
        fail "$1: the above"
    images=$(grep -c "open.*$shim" "$folder/trace")
    join -a 1 -a 2 -e 0 -o 0,1.2,2.2 "$folder/calls-bare" "$folder/calls" | awk -v images="$images" '
        { more = $3 - $2 }
        /^(openat|read|newfstatat|fstat|close|mprotect)\(/ && more == images { next }
        /^mmap\(/ && more >= 0 && more <= 7 * images { next }
        more != 0 { print $1 ") " $2 " times without the shim, " $3 " times with it, in " images " programs"; wrong = 1 }
        END { exit wrong || images == 0 }'
}

case $case in
ordinary_programs_run_byte_for_byte_the_same)
    limit 100
    echo nonsense >"$ALIQUOT_CONFIG" # whoever reads it says so on stderr
    cd / || exit 1
    for command in "bash -c 'echo \$((6*7)); exit 3'" "ls -l /usr" "cat /etc/passwd" "cat /nowhere" "sha256sum $shim" \
        "sort -r /etc/passwd | head -3" "has git && ($git_session)" "has java && $java" \
        "python3 -c 'import ctypes, json, socket, subprocess; print(json.dumps(subprocess.check_output([\"id\"]).decode()))'" \
        "ls -l /proc/self/fd | wc -l" "cat /proc/self/status | grep Threads" "env -i true"; do
        rm -rf "$folder/repository"
        (eval "$command") >"$folder/bare" 2>&1
        echo "exit $?" >>"$folder/bare"
        (
            rm -rf "$folder/repository"
            export LD_PRELOAD=$shim
            (eval "$command") >"$folder/shimmed" 2>&1
            echo "exit $?" >>"$folder/shimmed"
        )
        cmp "$folder/bare" "$folder/shimmed" || fail "$command: $(cat "$folder/shimmed")"
    done
    ;;
ordinary_programs_make_no_further_system_call)
    has strace && setarch -R true || {
        echo "skipped: strace or setarch -R does not work here (Debian: apt-get install strace)"
        exit 77
    }
    limit 100
    for command in "echo \$((6*7)); ls / | wc -l" "exec cat /etc/passwd" "exec ls -l /usr" "exec sha256sum /etc/passwd" \
        "has git && $git_session" "exec $python -S -c 'import json; print(json.dumps(1))'"; do
        repeatedly check_calls "has() { command -v \"\$1\" >/dev/null; }; folder=$folder; $command" ||
            fail "$command: the above"
    done
    ;;
java_opens_no_further_file_and_starts_no_further_thread)
    has strace && has java || {
        echo "skipped: strace or java is not installed"
        exit 77
    }
    limit 100
    # A virtual machine's threads come and go in no fixed order, but they are as many, and open the same files.
    files() { grep -oE 'open(at)?\([^"]*"[^"]*"[^=]*= [0-9]+' "$1" | cut -d'"' -f2 | grep -v '^/proc/[0-9]*/' | sort -u; }
    threads() { grep -cE 'clone3?\([^<]*CLONE_THREAD' "$1"; }
    trace_java() { strace -f -e trace=open,openat,clone,clone3 -o "$@" $java 2>/dev/null || fail "$java"; }
    check_java() {
        trace_java "$folder/bare"
        trace_java "$folder/shim" -E LD_PRELOAD="$shim"
        diff <(files "$folder/bare") <(files "$folder/shim") | grep '^[<>]' >"$folder/more"
        echo "threads without and with the shim: $(threads "$folder/bare"), $(threads "$folder/shim");" \
            "files: $(cat "$folder/more")"
        [ "$(cat "$folder/more")" = "> $shim" ] && [ "$(threads "$folder/bare")" = "$(threads "$folder/shim")" ]
    }
    repeatedly check_java || fail "the above"
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
