#!/bin/sh
# Checks that this container, which requests 64 MiB of a GPU, is limited to them: prints one sentence that names what is
# missing, and exits with status 1. Needs an image with glibc.
set -u

missing() {
    echo "FAILED: $*"
    exit 1
}

share=$(cat /etc/aliquot/vgpu 2> /dev/null)
[ -n "$share" ] ||
    missing "/etc/aliquot/vgpu is missing or empty: the kubelet has not mounted the pod's limits, which the scheduler writes when it binds the pod"
case $share in
    *' memory=64Mi '*) ;;
    *) missing "/etc/aliquot/vgpu says \"$share\" instead of memory=64Mi" ;;
esac

shim=$(cat /etc/ld.so.preload 2> /dev/null)
[ -n "$shim" ] ||
    missing "/etc/ld.so.preload is missing or empty: the kubelet has started the container without the node's agent"
case $shim in
    /usr/local/aliquot/*/libaliquot.so) ;;
    *) missing "/etc/ld.so.preload names $shim instead of Aliquot's library" ;;
esac
# grep's own mappings
grep -qF "$shim" /proc/self/maps || missing "the loader has not loaded $shim into a program"

grep -q -e /libcuda.so -e /libnvidia-ml.so /proc/self/mountinfo ||
    missing "no library of NVIDIA's driver is mounted: another runtime than NVIDIA's has started the container; its RuntimeClass is the chart value runtimeClass.name"

seen="nvidia-smi is not mounted"
if command -v nvidia-smi > /dev/null; then
    memory=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader 2>&1)
    [ "$memory" = "64 MiB" ] || missing "nvidia-smi shows \"$memory\" instead of one GPU with 64 MiB"
    seen="nvidia-smi shows 64 MiB"
fi
echo "OK: the container is limited to its share, $share; $shim is loaded, and $seen"
