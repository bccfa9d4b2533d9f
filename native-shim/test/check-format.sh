#!/bin/sh
# Checks the format of every C source below $1 with clang-format. Skipped (77) if clang-format is missing.
command -v clang-format >/dev/null || {
    echo "skipped: clang-format is not installed (Debian: apt-get install clang-format)"
    exit 77
}
find "$1" -name build -prune -o -name fake-driver -prune -o -name '*.[ch]' -print0 |
    xargs -0 clang-format --dry-run -Werror
