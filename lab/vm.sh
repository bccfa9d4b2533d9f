# shellcheck shell=bash
# A node in a virtual machine: Debian's kernel, systemd, cgroup v2 with the systemd driver, containerd 2, XFS and Btrfs,
# real reboots.
# QEMU is one of the lab's programs, in its namespaces: it ends with the lab, and so does its network device.

vm_qemu=$vm_node/qemu
vm_tap=vm0

# --- the disks -------------------------------------------------------------------------------------------------------

# Debian trixie with a kernel and systemd: a folder in the cache
vm_root() { printf '%s/vm-%s' "$cache" "$(declare -f make_vm_root | sha256sum | cut -c1-16)"; }

# The kernel finds its disk by one module; with all of them its initrd is three times as large.
make_vm_root() {
    local folder
    folder=$(vm_root)
    rm -rf "$cache"/vm-*
    # shellcheck disable=SC2016
    mmdebstrap --variant=minbase \
        --include=dbus,initramfs-tools,iproute2,kmod,libseccomp2,linux-image-cloud-amd64,openssh-server,systemd-sysv \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d"' \
        --essential-hook='echo MODULES=list > "$1/etc/initramfs-tools/conf.d/modules"' \
        --essential-hook='echo virtio_blk > "$1/etc/initramfs-tools/modules"' \
        trixie "$folder"
    : > "$folder/complete"
}

# Two folders are file systems of their own, as on many nodes: regions and the agent's files are on XFS, the kubelet's checkpoint and
# volumes on Btrfs. Lines of DEVICE TYPE FOLDER, in the order of the devices.
vm_file_systems() {
    printf 'vdb xfs %s\n' /var/lib/aliquot
    printf 'vdc btrfs %s\n' /var/lib/kubelet
}

make_vm_file_systems() {
    local device type
    while read -r device type _; do
        rm -f "$lab/$vm_node/$device"
        truncate -s 2G "$lab/$vm_node/$device"
        "mkfs.$type" -q "$lab/$vm_node/$device"
    done < <(vm_file_systems)
}

# The node's disk, of that root, the node's folder (which is at /run/node as on the other nodes), and the images.
make_vm_disk() {
    local folder=$lab/$vm_node tree=$lab/$vm_node/tree
    [ -f "$lab/pki/$vm_node.crt" ] || certificate "$vm_node" "/O=system:nodes/CN=system:node:$vm_node" clientAuth
    make_node_folder "$vm_node"
    [ -f "$folder/ssh" ] || ssh-keygen -q -t ed25519 -N '' -C "$marker" -f "$folder/ssh"
    mkdir -p "$folder/boot"
    cp "$(vm_root)"/boot/vmlinuz-* "$folder/boot/vmlinuz"
    cp "$(vm_root)"/boot/initrd.img-* "$folder/boot/initrd"

    rm -rf "$tree" "$folder/disk"
    cp -a --reflink=auto "$(vm_root)" "$tree"
    rm -r "$tree/complete" "$tree"/boot/*
    make_vm_file_systems
    mkdir -p "$tree"/etc/{cdi,containerd,nvidia-container-runtime} "$tree"/var/lib/{aliquot,kubelet,node} "$tree$(cni_plugins)"
    cp -r "$folder"/{programs,cni-config,kubelet.yaml,kubeconfig,ca.crt,resolv.conf} "$tree/var/lib/node"
    cp "$folder/containerd-config/config.toml" "$tree/etc/containerd"
    cp "$folder/nvidia-container-runtime/config.toml" "$tree/etc/nvidia-container-runtime"
    cp "$(cni_plugins)"/{ptp,host-local,loopback} "$tree$(cni_plugins)"
    configure_vm "$tree"
    unpack_images "$tree/var/lib/containerd" pause "${vm_images[@]}"
    mke2fs -q -t ext4 -d "$tree" "$folder/disk.tmp" 10G
    rm -rf "$tree"
    publish "$folder/disk.tmp" "$folder/disk"
}

configure_vm() { # ROOT
    local etc=$1/etc unit
    echo "$vm_node" > "$etc/hostname"
    printf '127.0.0.1 localhost %s\n' "$vm_node" > "$etc/hosts"
    : > "$etc/resolv.conf"
    printf '/dev/vda / ext4 defaults 0 0\n' > "$etc/fstab"
    vm_file_systems | sed -E 's#(.*) (.*) (.*)#/dev/\1 \3 \2 defaults 0 0#' >> "$etc/fstab"
    echo 'L /run/node - - - - /var/lib/node' > "$etc/tmpfiles.d/node.conf"
    echo overlay > "$etc/modules-load.d/node.conf"
    echo net.ipv4.ip_forward=1 > "$etc/sysctl.d/node.conf"
    install -d -m 700 "$1/root/.ssh"
    install -m 600 "$lab/$vm_node/ssh.pub" "$1/root/.ssh/authorized_keys"
    # A container whose first process ignores SIGTERM delays a reboot by 90 s otherwise.
    mkdir -p "$etc/systemd/system.conf.d"
    printf '[Manager]\nDefaultTimeoutStopSec=10s\n' > "$etc/systemd/system.conf.d/node.conf"
    cat > "$etc/systemd/network/node.network" <<-END
		[Match]
		Driver=virtio_net
		[Network]
		Address=$(node_address "$vm_node")/24
		Gateway=$api_address
		LinkLocalAddressing=no
		IPv6AcceptRA=no
	END
    # As containerd's own unit: systemd leaves the cgroups of the containers, and a restart the containers, alone.
    cat > "$etc/systemd/system/containerd.service" <<-END
		[Unit]
		After=network.target
		[Service]
		Type=notify
		Environment=PATH=$vm_path
		ExecStart=/run/node/programs/containerd
		Delegate=yes
		KillMode=process
		OOMScoreAdjust=-999
		LimitNOFILE=1048576
		Restart=always
		[Install]
		WantedBy=multi-user.target
	END
    cat > "$etc/systemd/system/kubelet.service" <<-END
		[Unit]
		After=containerd.service
		Wants=containerd.service
		[Service]
		Environment=PATH=$vm_path
		ExecStart=/run/node/programs/kubelet $(kubelet_flags "$vm_node")
		Restart=always
		RestartSec=2
		[Install]
		WantedBy=multi-user.target
	END
    chroot "$1" systemctl --quiet enable systemd-networkd containerd kubelet ssh
    for unit in apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer systemd-networkd-wait-online.service; do
        ln -sf /dev/null "$etc/systemd/system/$unit"
    done
}

# Imports images into a folder of containerd's, whose path does not matter afterwards: without virtualization by the
# processor the import of the agent's image takes 46 s in the machine. Call it through `contained`.
unpack_images() { # FOLDER NAME...
    local folder=$1 programs name
    local -a ctr
    programs=$(runtime_programs)
    shift
    mount -t tmpfs tmpfs /run
    ctr=("$programs/ctr" --address /run/containerd.sock --namespace k8s.io)
    printf 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n' > /run/containerd.toml
    PATH=$programs:$PATH "$programs/containerd" --config /run/containerd.toml --address /run/containerd.sock \
        --root "$folder" --state /run/containerd &
    await 60 "${ctr[@]}" version || die "containerd does not answer."
    for name; do "${ctr[@]}" images import "$(image_file "$name")"; done
    kill $!
    wait $! || true
}

# --- running --------------------------------------------------------------------------------------------------------

vm_images=(aliquot-device-plugin aliquot-fake-driver sample)
vm_path=/run/node/programs:/usr/sbin:/usr/bin:/sbin:/bin

vm_runs() { [ -f "$lab/run/$vm_qemu.pid" ] && ! is_dead "$vm_qemu"; }

# /dev/kvm alone does not tell: without these flags it is a hypervisor's that starts only kernels made for it.
vm_accelerator() {
    if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then printf kvm; else printf tcg,thread=multi,tb-size=512; fi
}

# The node's address is in the subnet of the others': Linux answers requests for each of its addresses on each device.
start_vm() {
    local folder=$lab/$vm_node device
    local -a drives
    for device in disk $(vm_file_systems | cut -d ' ' -f 1); do
        drives+=(-drive "file=$folder/$device,format=raw,if=virtio,cache=unsafe")
    done
    # shellcheck disable=SC2016
    "${in_network[@]}" bash -c '
        set -e
        ip link show "$1" > /dev/null 2>&1 || ip tuntap add dev "$1" mode tap
        ip link set "$1" up
        ip route replace "$2/32" dev "$1" src "$4"
        ip route replace "$3" via "$2" dev "$1" onlink' - \
        "$vm_tap" "$(node_address "$vm_node")" "$(pod_cidr "$vm_node")" "$api_address"
    launch "$vm_qemu" qemu-system-x86_64 -accel "$(vm_accelerator)" -cpu max -smp 2 -m 2G -display none -monitor none \
        -kernel "$folder/boot/vmlinuz" -initrd "$folder/boot/initrd" \
        -append "root=/dev/vda rw console=ttyS0 mitigations=off quiet" \
        "${drives[@]}" \
        -netdev "tap,id=net,ifname=$vm_tap,script=no,downscript=no" -device virtio-net-pci,netdev=net \
        -device virtio-rng-pci -serial "file:$lab/log/$vm_node/console.log"
}

# Runs a command in the machine, as root.
in_vm() { # COMMAND...
    "${in_network[@]}" ssh -q -i "$lab/$vm_node/ssh" -o BatchMode=yes -o ConnectTimeout=10 -o StrictHostKeyChecking=no \
        -o UserKnownHostsFile=/dev/null "root@$(node_address "$vm_node")" "PATH=$vm_path exec $(printf '%q ' "$@")"
}

start_vm_in_lab() {
    find_lab
    start_vm
    await_or_die 600 "the virtual machine did not become a ready node" "$vm_node/console.log" node_ready "$vm_node"
    await 600 gpus_registered "$vm_node" || { describe_installation; die "$vm_node has no allocatable aliquot.io/vgpu after 600 s."; }
}

vm_up() {
    if vm_runs; then
        say "$vm_node runs already."
        return
    fi
    install_missing_packages "the virtual machine" <<-'END'
		qemu-system-x86 qemu-system-x86_64
		openssh-client ssh
		e2fsprogs mke2fs
		xfsprogs mkfs.xfs
		btrfs-progs mkfs.btrfs
	END
    lock_cache
    [ -f "$(vm_root)/complete" ] ||
        step vm-root "Making a Debian trixie root with a kernel, once; about 1 minute" contained make_vm_root
    unlock_cache
    build_images pause "${vm_images[@]}"
    [ -f "$lab/$vm_node/disk" ] || step vm-disk "Making the disk of $vm_node" contained make_vm_disk
    step vm "Starting $vm_node, a virtual machine ($(vm_accelerator | cut -d , -f 1))" uncontained start_vm_in_lab
}

# Its pods end with it, so they are deleted as those of a node that is gone.
vm_down() {
    signal_program KILL "$vm_qemu" || true
    await 30 is_dead "$vm_qemu" || die "QEMU has not ended within 30 s of SIGKILL."
    kubectl delete node "$vm_node" --ignore-not-found
    kubectl delete pods --all-namespaces --field-selector "spec.nodeName=$vm_node" --force --grace-period 0
    # shellcheck disable=SC2016
    "${in_network[@]}" sh -c '! ip link show "$1" > /dev/null 2>&1 || ip link delete "$1"' - "$vm_tap"
    rm -rf "${lab:?}/$vm_node" "$lab/run/$vm_node"
}

# A power failure: what the machine has not written to its disk is lost.
reset_vm() {
    signal_program KILL "$vm_qemu" || die "$vm_node is not running." "Start it: ./aliquot vm up"
    await 30 is_dead "$vm_qemu" || die "QEMU has not ended within 30 s of SIGKILL."
    start_vm
    await_or_die 600 "the kubelet of $vm_node did not answer" "$vm_node/console.log" kubelet_answers "$vm_node"
}
