#!/bin/sh
# clients.sh FOLDER LIST: installs the PyPI packages in LIST into the build cache, once; FOLDER links there. Exits with 77
# if PyPI is unavailable.
set -eu
folder=$1 list=$2
cache=${XDG_CACHE_HOME:-$HOME/.cache}/aliquot
installed=$cache/pypi-$( (cat "$list" && python3 --version) | sha256sum | cut -c1-16)
mkdir -p "$cache"
exec 9>"$installed.lock"
flock 9
if [ ! -e "$installed/installed" ]; then
    rm -rf "$installed"
    if ! python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --timeout 20 \
        --retries 1 --root-user-action ignore --target "$installed" -r "$list"; then
        echo "skipped: $list cannot be installed from PyPI by python3 -m pip"
        rm -rf "$installed"
        exit 77
    fi
    cp "$list" "$installed/installed"
fi
[ -L "$folder" ] || rm -rf "$folder"
ln -sfn "$installed" "$folder"
