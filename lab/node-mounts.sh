#!/usr/bin/env bash
# node-mounts.sh FOLDER: mounts a node's default paths (/var/lib/kubelet and so on) from FOLDER, in the mount namespace
# that it runs in; the machine's files do not change. Then sleeps forever, which keeps the namespace.
set -euo pipefail
folder=$1

# Through /mnt, since the mounts below may hide FOLDER.
mount --bind "$folder" /mnt
mkdir -p /mnt/{kubelet,aliquot,containerd,cni,logs,cdi,sysctl}
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/node /run/netns /run/lock /run/etc/{new,work}
mount --bind /mnt /run/node
umount /mnt

mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir -p /var/lib/{kubelet,aliquot,containerd,cni}
for name in kubelet aliquot containerd cni; do mount --bind "/run/node/$name" "/var/lib/$name"; done
mount --bind /run/node/logs /var/log

# /etc is the machine's, below an overlay for this node.
mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/etc/new,workdir=/run/etc/work /etc
mkdir -p /etc/{cdi,containerd,nvidia-container-runtime}
mount --bind /run/node/cdi /etc/cdi
mount --bind /run/node/containerd-config /etc/containerd
mount --bind /run/node/nvidia-container-runtime /etc/nvidia-container-runtime

# The kubelet sets these for the whole machine (pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables). It
# finds its values in these files, so it leaves the machine's settings alone.
while read -r name value; do
    [ -e "/proc/sys/$name" ] || continue
    file=/run/node/sysctl/${name//\//.}
    echo "$value" > "$file"
    mount --bind "$file" "/proc/sys/$name"
done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END

# The kubelet reports it, and one that is new is a reboot.
cat /proc/sys/kernel/random/uuid > /run/node/sysctl/boot_id
mount --bind /run/node/sysctl/boot_id /proc/sys/kernel/random/boot_id

# The kubelet shares mounts with containers.
mount --make-rshared /

: > /run/node/mounted
exec sleep infinity
