#!/bin/sh
# client_test.sh FOLDER TEST.py [ARGUMENT]: runs a test with the clients in FOLDER; exits with 77 if there are none.
set -eu
clients=$1
shift
if [ ! -e "$clients/installed" ]; then
    echo "skipped: no clients from PyPI in $clients"
    exit 77
fi
PYTHONPATH=$clients PYTHONDONTWRITEBYTECODE=1 exec python3 "$@"
