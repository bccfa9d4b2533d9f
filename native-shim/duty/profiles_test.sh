#!/bin/bash
# In the long tier of the tests, and only there, runs a script of this folder: SCRIPT [ARGUMENTS]
set -eu
if [ -z "${ALIQUOT_LONG:-}" ]; then
    echo "skipped: this test takes minutes; set ALIQUOT_LONG, as ./aliquot test --long native does"
    exit 77
fi
exec "$(dirname "$0")/$1" "${@:2}"
