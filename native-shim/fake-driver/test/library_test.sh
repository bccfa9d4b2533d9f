#!/bin/sh
# library_test.sh FILE...: checks that no file needs a glibc newer than 2.17, so that old containers can load them.
set -eu
for file in "$@"; do
    newest=$(objdump -T "$file" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1)
    if [ "$(printf '%s\n2.17\n' "$newest" | sort -V | tail -n 1)" != 2.17 ]; then
        echo "$file needs glibc $newest"
        exit 1
    fi
done
