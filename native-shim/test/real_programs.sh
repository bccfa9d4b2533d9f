#!/bin/bash
# Real GPU programs under the shim, on the simulated GPU:
#   real_programs.sh install FOLDER                  installs them from PyPI into the build cache; FOLDER links there
#   real_programs.sh CASE FOLDER SHIM FAKE SAMPLE    runs a case of real_programs.py
# They take 7 GB of disk, so they run only where ALIQUOT_LONG is set, as `./aliquot test --long native` does; else 77 is returned.
set -u
case=$1 programs=$2
here=$(cd "$(dirname "$0")" && pwd)
skip() {
    echo "skipped: $*"
    exit 77
}
[ -n "${ALIQUOT_LONG:-}" ] || skip "ALIQUOT_LONG is not set (./aliquot test --long native)"

if [ "$case" = install ]; then
    list=$here/real_programs.txt
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/aliquot
    environment=$cache/programs-from-pypi-$(sha256sum "$list" | cut -c1-16)
    mkdir -p "$cache" || exit 1
    exec 9>"$cache/programs-from-pypi.lock"
    flock --timeout 1500 9 || skip "another process fills $environment"
    if [ ! -e "$environment/complete" ]; then
        rm -rf "$cache"/programs-from-pypi-*
        free=$(df --output=avail --block-size=1G "$cache" | tail -n 1)
        [ "$free" -ge 12 ] || skip "12 GB of free disk space are needed below $cache; there are $free GB"
        python3 -m venv "$environment" &&
            "$environment/bin/python3" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile \
                --only-binary :all: --no-binary gpustat --timeout 60 -r "$list" || {
            rm -rf "$environment"
            skip "$list cannot be installed from PyPI"
        }
        : >"$environment/complete"
    fi
    ln -sfn "$environment" "$programs"
    exit 0
fi

shim=$3 fake=$4
[ -e "$programs/complete" ] || skip "the programs are not installed in $programs"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r --sparse=always "$fake/gpus" "$folder/gpus" # other tests run at the same time
export ALIQUOT_FAKE_GPUS=$folder/gpus ALIQUOT_FAKE_LOG=$folder/log LD_LIBRARY_PATH=$fake/lib SAMPLE=$5
export ALIQUOT_CONFIG=$folder/vgpu ALIQUOT_REGION=$folder/region CUDA_VISIBLE_DEVICES=0 PYTHONDONTWRITEBYTECODE=1
uuid=$("$fake/bin/nvidia-smi" -L | grep -oE 'GPU-[0-9a-f-]+' | head -1)
echo "$uuid memory=3000Mi cores=0 policy=none context=0Mi" >"$ALIQUOT_CONFIG"
: >"$ALIQUOT_REGION"
status=0
# A program that hangs is killed with the processes that it started.
LD_PRELOAD=$shim timeout --kill-after=10 300 "$programs/bin/python3" "$here/real_programs.py" "$case" || status=$?
unhooked=$(od -A n -t u8 -j 128 -N 8 "$ALIQUOT_REGION" 2>/dev/null | tr -d ' ')
[ "${unhooked:-0}" = 0 ] || {
    echo "unhooked_functions in the region is $unhooked, expected 0"
    status=1
}
[ "$status" = 0 ] || grep -E 'slot|not supported' "$folder/log" | sort | uniq -c | sort -rn | head -20
exit "$status"
