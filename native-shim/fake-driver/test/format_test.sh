#!/bin/sh
# format_test.sh FOLDER...: checks all C sources against .clang-format; exits with 77 without clang-format.
set -eu
command -v clang-format >/dev/null || {
    echo "skipped: clang-format is not installed (Debian: apt-get install clang-format)"
    exit 77
}
find "$@" -name '*.[ch]' -exec clang-format --dry-run -Werror {} +
