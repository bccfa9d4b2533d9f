#!/bin/bash
# Checks that two tenants of one simulated GPU get their shares in every second, with the shim and in virtual time, so
# that ten seconds take a moment: virtual_tenants_test.sh SHIM CLOCK DRIVER.
set -eu
shim=$1 clock=$2 driver=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
printf 'NVIDIA A100-SXM4-80GB;81920;108\n' >"$folder/gpus"
"$driver/aliquot-fake-driver" install --root "$folder/root" --source "$driver" --cdi "$folder/cdi" \
    --gpus "$folder/gpus" --node here >"$folder/installed"
uuid=$(basename "$folder"/root/gpus/GPU-*)
export ALIQUOT_FAKE_GPUS=$folder/root/gpus

tenant() { # tenant NUMBER CORES
    echo "$uuid memory=3000Mi cores=$2" >"$folder/limits.$1"
    : >"$folder/region.$1"
    ALIQUOT_CONFIG=$folder/limits.$1 ALIQUOT_REGION=$folder/region.$1 ALIQUOT_VIRTUAL_TIME=$folder/clock \
        ALIQUOT_VIRTUAL_TIME_PARTICIPANTS=2 ALIQUOT_VIRTUAL_TIME_PRIORITY=$1 LD_LIBRARY_PATH=$folder/root/lib \
        LD_PRELOAD=$clock:$shim "$driver/vgpu-sample" busy 10 >"$folder/out.$1"
}

tenant 1 30 &
tenant 2 70
wait $!
paste "$folder/out.1" "$folder/out.2" >"$folder/both"
# The first second does not count: both tenants start with their burst.
awk 'NR > 1 && NR < 10 { if ($2 < 280 || $2 > 320 || $10 < 680 || $10 > 720) bad = 1; n++ }
     END { exit bad || n != 8 }' "$folder/both" || {
    cat "$folder/both" >&2
    exit 1
}
