#!/bin/sh
# Checks the format of every C source below $1 with clang-format. Skipped (77) if clang-format is missing.
command -v clang-format >/dev/null || {
    echo "skipped: clang-format is not installed (Debian: apt-get install clang-format)"
    exit 77
}
# clang-format before version 15 does not know InsertBraces, so the braces of conditions on one line are checked here.
! grep -rnE '^ *(\} else )?(if|for|while) \(.*\)$|(^| )else$' --include='*.[ch]' --exclude-dir=build "$1" || {
    echo "the lines above lack braces"
    exit 1
}
find "$1" -name build -prune -o -name '*.[ch]' -print0 |
    xargs -0 clang-format --Wno-error=unknown --dry-run -Werror
