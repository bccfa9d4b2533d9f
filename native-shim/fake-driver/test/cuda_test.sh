#!/bin/bash
# cuda_test.sh DRIVER PROGRAMS NAME [SHIM]: runs all versions of a program of cuda_programs.sh on new simulated GPUs;
# with SHIM, under the shim with a limit of 3,000 MiB on the first GPU.
set -eu
driver=$1 programs=$2 name=$3 shim=${4:-}
if [ ! -e "$programs/$name-13-static" ]; then
    echo "skipped: no $name in $programs"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
model='NVIDIA A100-SXM4-80GB' memory=81920
printf '%s;%s;108\nNVIDIA L4;23034;58\n' "$model" $memory >"$folder/list"
"$driver/aliquot-fake-driver" install --root "$folder/root" --source "$driver" --cdi "$folder/cdi" \
    --gpus "$folder/list" --node test >"$folder/out"
export ALIQUOT_FAKE_GPUS=$folder/root/gpus ALIQUOT_FAKE_LOG=$folder/log
if [ -n "$shim" ]; then
    memory=3000
    uuid=$(LD_LIBRARY_PATH=$driver "$driver/nvidia-smi" -L | grep -oE 'GPU-[0-9a-f-]+' | head -1)
    echo "$uuid memory=${memory}Mi cores=100 policy=none priority=0 context=0Mi" >"$folder/vgpu"
    export ALIQUOT_CONFIG=$folder/vgpu ALIQUOT_REGION=$folder/region
fi
failed=0
run() { # PROGRAM ARGUMENT...
    [ -z "$shim" ] || : >"$ALIQUOT_REGION"
    if ! LD_PRELOAD=$shim LD_LIBRARY_PATH=$driver:$programs/lib13:$programs/lib12 timeout 60 "$@"; then
        echo "FAILED: $*" >&2
        failed=1
    fi
}
for program in "$programs/$name"-1[23]-{shared,static}; do
    case $name in
    query) run "$program" "$model" $memory 108 ;;
    images) run "$program" "$programs/images" ;;
    limit)
        run "$program" plain $memory
        run "$program" async $memory
        ;;
    *) run "$program" ;;
    esac
done
if grep -E 'slot|is not supported' "$folder/log"; then
    echo "FAILED: the runtime called a function that the driver lacks" >&2
    failed=1
fi
exit $failed
