#!/bin/bash
# Checks symbols and dependencies of the built library: library_test.sh LIBRARY SOURCE_FOLDER CASE. CROSS is the prefix
# of the binutils of another architecture.
set -u
nm=${CROSS-}nm objdump=${CROSS-}objdump readelf=${CROSS-}readelf
library=$1 source=$2 case=$3
fail() {
    echo "$case: $*" >&2
    exit 1
}
case $case in
it_exports_its_hooks_and_dlsym_and_nothing_else)
    expected=$( (echo dlsym && printf '#define ALIQUOT_HOOKS_ONLY\n#include "driver/hooks.h"\nALIQUOT_HOOKS(HOOK)\n' |
        "${CC:-cc}" -E -iquote "$source/src" - | grep -oE 'HOOK\((CUDA|NVML), [A-Za-z_]+, [A-Za-z0-9_]+' |
        sed 's/.* //') | sort)
    found=$($nm -D --defined-only "$library" | awk '{print $3}' | sort)
    [ "$(wc -l <<<"$expected")" -gt 20 ] || fail "cannot parse the list of hooks"
    diff <(echo "$expected") <(echo "$found") || fail "hooks.h (<) and nm -D (>) differ"
    ;;
it_needs_no_glibc_newer_than_2_17)
    newest=$($objdump -T "$library" | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -uV | tail -1)
    [ -n "$newest" ] || fail "objdump shows no GLIBC version"
    [ "$(printf '%s\n2.17\n' "$newest" | sort -V | tail -1)" = 2.17 ] ||
        fail "$($objdump -T "$library" | grep "GLIBC_$newest")"
    ;;
it_needs_only_libc_and_no_symbol_that_moved_between_libraries)
    needed=$($objdump -p "$library" | awk '/NEEDED/ {print $2}')
    [ "$needed" = libc.so.6 ] || fail "needs $needed"
    moved='dl[a-z]+|pthread_(create|once|key_create)|__isoc23_[a-z]+|__[a-z]+_chk|x?stat(64)?|fstat(64)?'
    $objdump -T "$library" | grep -E "\*UND\*.* ($moved)\$" &&
        fail "the symbols above moved between libraries or are too new"
    true
    ;;
it_has_one_constructor)
    # Two entries of 8 bytes: frame_dummy of crtbeginS.o, and note_files of config.c.
    [ "$($readelf -Wd "$library" | awk '/INIT_ARRAYSZ/ {print $3}')" = 16 ] || fail "$($readelf -Wd "$library")"
    ;;
*)
    fail "unknown case"
    ;;
esac
