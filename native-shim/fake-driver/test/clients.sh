#!/bin/sh
# clients.sh FOLDER LIST: installs the PyPI packages in LIST into FOLDER, once; exits with 77 if PyPI is unavailable.
set -eu
list=$2
if cmp -s "$list" "$1/installed"; then
    exit 0
fi
rm -rf "$1"
if ! python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --timeout 20 --retries 1 \
    --root-user-action ignore --target "$1" -r "$list"; then
    echo "skipped: $list cannot be installed from PyPI by python3 -m pip"
    rm -rf "$1"
    exit 77
fi
cp "$list" "$1/installed"
