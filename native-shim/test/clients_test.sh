#!/bin/bash
# Runs ordinary programs with the shim preloaded: clients_test.sh SHIM STUB_FOLDER CASE [ARGUMENT].
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

# Creates a repository with the same content every time and prints its history.
# shellcheck disable=SC2016
git_session='git init --quiet $folder/repository && cd $folder/repository && echo text >file &&
    git add file && git commit --quiet --message first && git log --stat --format=fuller'
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 HOME=$folder
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=c GIT_COMMITTER_EMAIL=c@d
export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
has() { command -v "$1" >/dev/null; }
# The interpreter's own path, since python3 may be a wrapper.
python=$(python3 -c 'import sys; print(sys.executable)')
java='java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -version'

# Counts the system calls of a program by name. Address space randomization is off, since it would change the counts.
count_calls() { # TRACE [strace's options] COMMAND
    local trace=$1
    shift
    rm -rf "$folder/repository"
    PYTHONHASHSEED=0 setarch -R strace -f -o "$trace" "$@" >/dev/null 2>&1
    sed -E 's/^[0-9]+ +//' "$trace" | grep -oE '^[a-z0-9_]+\(' | sort | uniq -c | awk '{print $2, $1}'
}
# Runs a check up to three times: random names or an extra thread sometimes make a difference without the shim, too.
retry() { "$@" || "$@" || "$@"; }
# Checks that COMMAND makes no additional system calls under the shim, except those by which the dynamic loader opens
# and maps one more library in each program that COMMAND starts, and the shim notes its three files.
check_calls() { # COMMAND
    local images
    count_calls "$folder/trace-bare" bash -c "$1" >"$folder/calls-bare"
    count_calls "$folder/trace" -E LD_PRELOAD="$shim" bash -c "$1" >"$folder/calls"
    grep -F -e /etc/aliquot -e /usr/local/aliquot -e "$ALIQUOT_CONFIG" -e "$ALIQUOT_REGION" "$folder/trace" |
        grep -vE '(newfstatat|stat)\(.*"(/etc/aliquot|/usr/local/aliquot/(region|agent))",' &&
        fail "$1: the system calls above use the shim's files"
    images=$(grep -c "open.*$shim" "$folder/trace")
    join -a 1 -a 2 -e 0 -o 0,1.2,2.2 "$folder/calls-bare" "$folder/calls" | awk -v images="$images" '
        { more = $3 - $2 }
        /^(openat|read|fstat|close|mprotect)\(/ && more == images { next }
        /^newfstatat\(/ && (more == 3 * images || more == 4 * images) { next }
        /^mmap\(/ && more >= 0 && more <= 7 * images { next }
        more != 0 {
            print $1 ") " $2 " times without the shim, " $3 " times with it, in " images " programs"
            wrong = 1
        }
        END { exit wrong || images == 0 }'
}

case $case in
the_output_of_ordinary_programs_is_unchanged)
    limit 100
    echo nonsense >"$ALIQUOT_CONFIG" # a program that reads it prints an error
    cd / || exit 1
    for command in "bash -c 'echo \$((6*7)); exit 3'" "ls -l /usr" "cat /etc/passwd" "cat /nowhere" "sha256sum $shim" \
        "sort -r /etc/passwd | head -3" "has git && ($git_session)" "has java && $java" \
        "python3 -c 'import ctypes, json, socket, subprocess as s; print(json.dumps(s.check_output([\"id\"]).decode()))'" \
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
        cmp "$folder/bare" "$folder/shimmed" || fail "$command prints with the shim: $(cat "$folder/shimmed")"
    done
    ;;
ordinary_programs_make_no_additional_system_calls)
    # Not git: its calls vary by themselves, in some folders at each try.
    has strace && setarch -R true || {
        echo "skipped: strace or setarch -R does not work here (Debian: apt-get install strace)"
        exit 77
    }
    limit 100
    for command in "echo \$((6*7)); ls / | wc -l" "exec cat /etc/passwd" "exec ls -l /usr" \
        "exec sha256sum /etc/passwd" "sort -r /etc/passwd | head -3 | md5sum" "exec $python -S -c 'import json; print(json.dumps(1))'"; do
        retry check_calls "has() { command -v \"\$1\" >/dev/null; }; folder=$folder; $command" ||
            fail "$command: the counts above differ"
    done
    ;;
java_opens_no_additional_file_and_starts_no_additional_thread)
    has strace && has java || {
        echo "skipped: strace or java is not installed"
        exit 77
    }
    limit 100
    # The order in which a JVM starts threads varies. Their number and the files that they open do not.
    files() {
        grep -oE 'open(at)?\([^"]*"[^"]*"[^=]*= [0-9]+' "$1" | cut -d'"' -f2 | grep -v '^/proc/[0-9]*/' | sort -u
    }
    threads() { grep -cE 'clone3?\([^<]*CLONE_THREAD' "$1"; }
    # shellcheck disable=SC2086
    trace_java() { strace -f -e trace=open,openat,clone,clone3 -o "$@" $java 2>/dev/null || fail "$java"; }
    check_java() {
        trace_java "$folder/bare"
        trace_java "$folder/shim" -E LD_PRELOAD="$shim"
        diff <(files "$folder/bare") <(files "$folder/shim") | grep '^[<>]' >"$folder/more"
        echo "threads without and with the shim: $(threads "$folder/bare"), $(threads "$folder/shim");" \
            "files: $(cat "$folder/more")"
        [ "$(cat "$folder/more")" = "> $shim" ] && [ "$(threads "$folder/bare")" = "$(threads "$folder/shim")" ]
    }
    retry check_java || fail "the figures above differ by more than the shim itself"
    ;;
a_directly_linked_program_is_limited)
    limit 100
    [ "$(shimmed "$argument" 100)" = 0 ] || fail "100 MiB should fit"
    [ "$(shimmed "$argument" 101)" = 2 ] || fail "101 MiB should not fit"
    ;;
a_directly_linked_program_has_a_whole_card)
    limit 100
    sed -i 's/$/ exclusive/' "$ALIQUOT_CONFIG"
    [ "$(shimmed "$argument" 101)" = 0 ] || fail "101 MiB should fit"
    [ -s "$ALIQUOT_REGION" ] && fail "the region should not be used"
    rm "$ALIQUOT_REGION"
    [ "$(shimmed "$argument" 101)" = 0 ] || fail "101 MiB should fit without a region"
    echo nonsense >>"$ALIQUOT_CONFIG"
    [ "$(shimmed "$argument" 1 2>"$folder/errors")" = 800 ] || fail "an invalid limit file should close CUDA"
    grep -q 'CUDA is not permitted' "$folder/errors" || fail "$(cat "$folder/errors")"
    ;;
python_ctypes_is_limited)
    limit 100
    shimmed python3 - <<'PYTHON' || fail "the program above failed"
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
programs_built_with_a_sanitizer_are_limited)
    # Of gcc the runtime is a shared library, of clang it is in the program; the option asks for the other form.
    # GCC's shared AddressSanitizer ends where another library is preloaded, unless it is told not to look.
    export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0
    tested=
    while read -r compiler sanitizer option; do
        # shellcheck disable=SC2086
        has "$compiler" && "$compiler" -g "-fsanitize=$sanitizer" $option -o "$folder/program" \
            "$(dirname "$0")/linked.c" "-L$stub" -l:libcuda.so.1 2>"$folder/errors" || continue
        stub_and_runtime=$stub:$(dirname "$("$compiler" -print-file-name=libclang_rt.asan-x86_64.so)")
        for mode in "" " exclusive"; do
            limit 100
            sed -i "s/\$/$mode/" "$ALIQUOT_CONFIG"
            for request in "100 0" "101 $([ -n "$mode" ] && echo 0 || echo 2)"; do
                found=$(LD_PRELOAD=$shim LD_LIBRARY_PATH=$stub_and_runtime "$folder/program" "${request% *}" 2>&1)
                [ "$found" = "${request#* }" ] ||
                    fail "$compiler, $sanitizer $option$mode: ${request% *} MiB: expected ${request#* }, found $found"
            done
        done
        tested="$tested $compiler-$sanitizer$option"
    done <<'END'
gcc address
gcc address -static-libasan
gcc thread
gcc thread -static-libtsan
clang address
clang address -shared-libsan
clang thread
clang memory
END
    echo "tested:$tested"
    [ -n "$tested" ] || exit 77
    limit 100
    if [ -e "$(gcc -print-file-name=libasan.so)" ]; then
        LD_PRELOAD=$(gcc -print-file-name=libasan.so):$shim LD_LIBRARY_PATH=$stub "$python" -S -c '
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(101 << 20)) == 2
' || fail "Python with libasan preloaded"
    fi
    ;;
allocators_openmp_and_memory_tools_of_debian_run_beside_the_shim)
    [ -n "${ALIQUOT_LONG:-}" ] || {
        echo "skipped: ALIQUOT_LONG is not set (./aliquot test --long native)"
        exit 77
    }
    # Of Debian 12 and 13.
    for package in libjemalloc2 libmimalloc2.0 libmimalloc3 libtcmalloc-minimal4 libtcmalloc-minimal4t64 libomp5-14 \
        libomp5-19; do
        (cd "$folder" && apt-get -qq -o APT::Sandbox::User=root download "$package" 2>/dev/null &&
            dpkg -x "$package"_*.deb root)
    done
    check() { # NAME LIBRARY [COMMAND...]: more than the limit is refused, and the limit granted
        local name=$1 library=$2
        shift 2
        for request in "100 0" "101 2"; do
            limit 100
            found=$(cd "$folder" && LD_PRELOAD=$library$shim LD_LIBRARY_PATH=$stub "$@" "$argument" "${request% *}" 2>&1)
            grep -qx "${request#* }" <<<"$found" || fail "$name: ${request% *} MiB: expected ${request#* }, found $found"
        done
        tested="$tested $name"
    }
    tested=
    while IFS= read -r library; do
        check "$(basename "$library")" "$library:"
    done < <(find "$folder/root" -type f \( -name 'libjemalloc.so*' -o -name 'libmimalloc.so*' \
        -o -name 'libtcmalloc_minimal.so*' -o -name 'libomp[.-]*so*' \) 2>/dev/null)
    has valgrind && check valgrind "" valgrind -q --error-exitcode=9
    has heaptrack && check heaptrack "" heaptrack
    echo "tested:$tested"
    [ -n "$tested" ] || exit 77
    ;;
cuInit_without_a_driver_returns_CUDA_ERROR_NO_DEVICE)
    limit 100
    # No driver is installed; the program finds the shim's cuInit in the global scope.
    [ "$(LD_PRELOAD=$shim "$argument-weakly" 1)" = 100 ] || fail "$(LD_PRELOAD=$shim "$argument-weakly" 1)"
    ;;
*)
    fail "unknown case"
    ;;
esac
