#!/bin/bash
# Tests the library for arm64, built by Debian's cross compiler: arm64_test.sh SOURCE_FOLDER BUILD_FOLDER CASE.
# Skipped (77) if the compiler is missing, or, for the case that runs programs, the emulator.
set -u
source=$1 build=$2 case=$3
prefix=aarch64-linux-gnu-
need() { # COMMAND DEBIAN_PACKAGE
    command -v "$1" >/dev/null || {
        echo "skipped: $1 is not installed (Debian: apt-get install $2)"
        exit 77
    }
}
need ${prefix}gcc gcc-aarch64-linux-gnu
case $case in
it_is_built)
    cmake -S "$source" -B "$build" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
        -DCMAKE_C_COMPILER=${prefix}gcc &&
        cmake --build "$build" --parallel 2 --target aliquot aliquot-hook
    ;;
the_hook_needs_no_library_and_no_loader)
    [ -e "$build/hook/aliquot-hook" ] || exit 77 # not built; the test arm64.it_is_built gives the reason
    ${prefix}readelf --wide --file-header --segments --dynamic "$build/hook/aliquot-hook" >"$build/hook.txt" &&
        grep 'Machine: *AArch64' "$build/hook.txt" && ! grep -E 'INTERP|NEEDED' "$build/hook.txt"
    ;;
it_limits_memory_in_an_emulator)
    [ "${ALIQUOT_LONG:-}" = 1 ] || {
        echo "skipped: it takes a minute of both cores; runs with ALIQUOT_LONG=1, as in ./aliquot test --long native"
        exit 77
    }
    need qemu-aarch64-static qemu-user-static
    cmake --build "$build" --parallel 2 --target abi_test memory_test stub-cuda impostor plugin || exit 1
    tests=$build/test
    emulate() {
        timeout 200 qemu-aarch64-static -L /usr/aarch64-linux-gnu -E LD_PRELOAD="$build/libaliquot.so" \
            -E LD_LIBRARY_PATH="$tests/stub:$tests" -E STUB_PATH="$tests/stub/libcuda.so.1" \
            -E IMPOSTOR_PATH="$tests/libimpostor.so" -E PLUGIN_PATH="$tests/libplugin.so" "$@" 2>&1
    }
    # All lookup tests run, since dlsym is written in assembly. Of the memory tests a sample runs: the emulator is slow.
    emulate "$tests/abi_test" || exit 1
    for name in the_limit_is_exact_to_the_byte eight_threads_that_race_for_one_limit_never_exceed_it \
        two_processes_share_one_limit a_forked_child_gets_its_own_slot_and_does_not_change_its_parents; do
        emulate "$tests/memory_test" $name || {
            echo "$name: exit status $?"
            exit 1
        }
    done
    ;;
*)
    [ -e "$build/libaliquot.so" ] || exit 77 # not built; the test arm64.it_is_built gives the reason
    CROSS=$prefix exec "$(dirname "$0")/library_test.sh" "$build/libaliquot.so" "$source" "$case"
    ;;
esac
