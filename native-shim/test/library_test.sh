#!/bin/bash
# What the built library looks like from outside: library_test.sh LIBRARY SOURCE_FOLDER CASE; CROSS is the prefix of
# another architecture's tools.
set -u
nm=${CROSS-}nm objdump=${CROSS-}objdump readelf=${CROSS-}readelf
library=$1 source=$2 case=$3
fail() {
    echo "$case: $*" >&2
    exit 1
}
case $case in
it_exports_its_hooks_and_dlsym_and_nothing_else)
    wanted=$( (echo dlsym && grep -oE 'HOOK\((CUDA|NVML), [A-Za-z_]+, [A-Za-z0-9_]+' "$source/src/hooks.h" |
        sed 's/.* //') | sort)
    found=$($nm -D --defined-only "$library" | awk '{print $3}' | sort)
    listed=$(grep -oE '^ +[A-Za-z0-9_]+;' "$source/src/aliquot.map" | tr -d ' ;' | sort)
    [ "$(wc -l <<<"$wanted")" -gt 20 ] || fail "the list of hooks was not understood"
    diff <(echo "$wanted") <(echo "$found") || fail "hooks.h (<) and nm -D (>) differ"
    diff <(echo "$wanted") <(echo "$listed") || fail "hooks.h (<) and aliquot.map (>) differ"
    ;;
it_needs_no_glibc_newer_than_2_17)
    newest=$($objdump -T "$library" | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -uV | tail -1)
    [ -n "$newest" ] || fail "objdump shows no GLIBC version"
    [ "$(printf '%s\n2.17\n' "$newest" | sort -V | tail -1)" = 2.17 ] ||
        fail "$($objdump -T "$library" | grep "GLIBC_$newest")"
    ;;
it_needs_only_libc_and_nothing_that_once_lived_elsewhere)
    needed=$($objdump -p "$library" | awk '/NEEDED/ {print $2}')
    [ "$needed" = libc.so.6 ] || fail "needs $needed"
    $objdump -T "$library" | grep -E '\*UND\*.* (dl[a-z]+|pthread_(create|once|key_create)|__isoc23_[a-z]+|__[a-z]+_chk|x?stat(64)?|fstat(64)?)$' &&
        fail "the above moved between libraries or is too new"
    true
    ;;
it_has_no_constructor)
    # One entry: crtbeginS.o's own frame_dummy.
    [ "$($readelf -Wd "$library" | awk '/INIT_ARRAYSZ/ {print $3}')" = 8 ] || fail "$($readelf -Wd "$library")"
    ;;
*)
    fail "no such case"
    ;;
esac
