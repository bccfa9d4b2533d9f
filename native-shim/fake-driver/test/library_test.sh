#!/bin/sh
# library_test.sh CASE FILE...: checks that old containers can load the files. glibc: none needs a glibc newer than 2.17.
# needed: none needs another library than those of glibc.
set -eu
case=$1
shift
for file in "$@"; do
    case $case in
    glibc)
        newest=$(objdump -T "$file" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1)
        if [ "$(printf '%s\n2.17\n' "$newest" | sort -V | tail -n 1)" != 2.17 ]; then
            echo "$file needs glibc $newest"
            exit 1
        fi
        ;;
    needed)
        needed=$(objdump -p "$file" | awk '/NEEDED/ {print $2}')
        if [ -z "$needed" ] || echo "$needed" | grep -vxE '(lib(c|dl|pthread|m|rt)|ld-linux-[a-z0-9-]+)\.so\.[0-9]'; then
            echo "$file needs the libraries above; all: $needed"
            exit 1
        fi
        ;;
    esac
done
