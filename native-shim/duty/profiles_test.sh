#!/bin/bash
# In the long tier of the tests, and only there, runs profiles.sh with its arguments.
set -eu
if [ -z "${ALIQUOT_LONG:-}" ]; then
    echo "skipped: this test takes minutes; set ALIQUOT_LONG, as ./aliquot test --long native does"
    exit 77
fi
exec "$(dirname "$0")/profiles.sh" "$@"
