# shellcheck shell=bash
# A node: a kubelet and a containerd in a mount namespace where they use their default paths, or in the virtual machine.

# The node's own programs come before the machine's. Mounts over these would not do: runc executes itself through an overlay
# of its folder (libcontainer/exeseal), which shows the file under such a mount.
node_path=/run/node/programs:$PATH

# Runs a command in the namespaces of the node's programs.
in_node() { # NODE COMMAND...
    if [ "$1" = "$vm_node" ]; then
        in_vm "${@:2}"
        return
    fi
    "${in_lab[@]}" nsenter "--mount=$(node_mounts "$1")" -- env "PATH=$node_path" "${@:2}"
}

# The path of the node's mount namespace in the lab's PID namespace: that of the process which made the mounts. A bind
# mount of the namespace's file would need no process, but Linux 6.18 sometimes refuses it: mnt_ns_loop compares
# namespace numbers, which each processor hands out from a batch of its own.
node_mounts() { printf '/proc/%s/ns/mnt' "$(cut -d ' ' -f 1 "$lab/run/$1/mounts.pid")"; }

node_number() { printf '%s' "${1#node}"; }
node_address() { printf '%s.0.1%s' "$subnet" "$(node_number "$1")"; }
pod_cidr() { printf '%s.10%s.0/24' "$subnet" "$(node_number "$1")"; }

make_node() { # NODE
    make_node_folder "$1"
    make_node_cgroups "$1"
    mount_node "$1"
}

# Programs and configuration of a node, in the folder that it has at /run/node
make_node_folder() { # NODE
    local node=$1 folder=$lab/$1
    mkdir -p "$folder"/{programs,cni-config,containerd-config,nvidia-container-runtime}
    ln -f "$bin/kubelet" "$folder/programs/kubelet"
    cp "$(nvidia_runtime_program)" "$folder/programs/nvidia-container-runtime"
    ! has_containerd_2 "$node" || cp "$(runtime_programs)"/* "$folder/programs"

    : > "$folder/resolv.conf"
    kubeconfig "$node" "$folder/kubeconfig"
    cp "$lab/pki/ca.crt" "$folder/ca.crt"

    cat > "$folder/cni-config/10-lab.conflist" <<-END
		{"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "ptp", "ipMasq": false, "ipam": {
		  "type": "host-local", "ranges": [[{"subnet": "$(pod_cidr "$node")"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
	END

    # In CDI mode NVIDIA's runtime needs no driver, only the CDI specs that the simulated driver's installer writes.
    cat > "$folder/nvidia-container-runtime/config.toml" <<-END
		disable-require = true
		[nvidia-container-runtime]
		  mode = "cdi"
		  runtimes = ["runc"]
		[nvidia-container-runtime.modes.cdi]
		  default-kind = "nvidia.com/gpu"
		  spec-dirs = ["/etc/cdi"]
	END

    # restrict_oom_score_adj: runc cannot lower the score without CAP_SYS_RESOURCE, and would fail.
    # Version 2 of the configuration is what both containerds read; CDI is on by default in containerd 2, and off in 1.
    cat > "$folder/containerd-config/config.toml" <<-END
		version = 2
		[grpc]
		  address = "/run/containerd/containerd.sock"
		[plugins."io.containerd.grpc.v1.cri"]
		  sandbox_image = "docker.io/aliquot-lab/pause:lab"
		  restrict_oom_score_adj = true
		  [plugins."io.containerd.grpc.v1.cri".cni]
		    bin_dir = "$(cni_plugins)"
		    conf_dir = "/run/node/cni-config"
		  [plugins."io.containerd.grpc.v1.cri".containerd]
		    snapshotter = "overlayfs"
		    default_runtime_name = "$(default_runtime "$node")"
		    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
		      runtime_type = "io.containerd.runc.v2"
		      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
		        SystemdCgroup = $(has_systemd "$node" && echo true || echo false)
		    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
		      runtime_type = "io.containerd.runc.v2"
		      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
		        BinaryName = "/run/node/programs/nvidia-container-runtime"
		        SystemdCgroup = $(has_systemd "$node" && echo true || echo false)
	END

    # clusterDNS: the lab has no name service, but a kubelet without this address logs a warning for every pod.
    cat > "$folder/kubelet.yaml" <<-END
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		address: $(node_address "$node")
		authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /run/node/ca.crt}}
		authorization: {mode: Webhook}
		containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
		imageGCHighThresholdPercent: 100
		makeIPTablesUtilChains: false
		healthzPort: 0
		resolvConf: /run/node/resolv.conf
		clusterDNS: [$subnet.128.10]
		clusterDomain: cluster.local
		registerWithTaints: [$(node_taint "$node")]
	END
    # KEP-5593: the tests kill containers, and a backoff of up to five minutes would be theirs to wait. On 1.31 they wait.
    if kubernetes_from 32; then
        echo "crashLoopBackOff: {maxContainerRestartPeriod: 1s}" >> "$folder/kubelet.yaml"
        kubernetes_from 35 || echo "featureGates: {KubeletCrashLoopBackOffMax: true}" >> "$folder/kubelet.yaml"
    fi
    if has_systemd "$node"; then
        echo "cgroupDriver: systemd" >> "$folder/kubelet.yaml"
        return
    fi
    # The other nodes share the machine, and have cgroups below one of its own.
    cat >> "$folder/kubelet.yaml" <<-END
		cgroupDriver: cgroupfs
		cgroupRoot: /$marker/$node
		enforceNodeAllocatable: []
		failCgroupV1: false
		failSwapOn: false
		evictionHard: {}
		localStorageCapacityIsolation: false
	END
}

has_systemd() { [ "$1" = "$vm_node" ]; } # NODE
has_containerd_2() { [ "$1" = "$cdi_node" ] || [ "$1" = "$vm_node" ]; } # NODE

# Where NVIDIA's runtime is the default, every container sees all GPUs without Aliquot's webhook.
default_runtime() { if has_containerd_2 "$1"; then printf runc; else printf nvidia; fi; } # NODE

mount_node() { # NODE
    rm -f "$lab/$1/mounted"
    launch "$1/mounts" unshare --mount --propagation private bash "$root/lab/node-mounts.sh" "$lab/$1"
    await_or_die 60 "node-mounts.sh did not make the mounts of $1" "$1/mounts.log" test -f "$lab/$1/mounted"
}

# GPU nodes often have this taint. It also leaves Aliquot's replicas and the tests' other pods on the other nodes.
node_taint() { [[ " ${shared_nodes[*]} " == *" $1 "* ]] || printf '{key: nvidia.com/gpu, value: present, effect: NoSchedule}'; }

# The second is the label by which the GPU Operator and NVIDIA's charts find GPU nodes.
node_label() { if [ "$1" = "$other_node" ]; then printf nvidia.com/gpu.present=true; else printf gpu=on; fi; }

cni_plugins() {
    local folder
    for folder in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
        [ -x "$folder/ptp" ] || continue
        printf '%s' "$folder"
        return
    done
    die "there are no CNI plugins (ptp, host-local) in /usr/lib/cni, /opt/cni/bin or /usr/libexec/cni." "On Debian: apt-get install containernetworking-plugins"
}

# Containers survive both programs: the lab's first process adopts containerd's shims.
start_containerd() { # NODE
    launch "$1/containerd" nsenter "--mount=$(node_mounts "$1")" -- env "PATH=$node_path" containerd
}

start_kubelet() { # NODE
    await_or_die 60 "containerd on $1 did not answer" "$1/containerd.log" containerd_answers "$1"
    import_image "$1" "$(image_file pause)"
    # shellcheck disable=SC2046
    launch "$1/kubelet" nsenter "--mount=$(node_mounts "$1")" -- /run/node/programs/kubelet $(kubelet_flags "$1")
}

kubelet_flags() { # NODE
    printf '%s ' --config /run/node/kubelet.yaml --kubeconfig /run/node/kubeconfig --hostname-override "$1" \
        --node-ip "$(node_address "$1")" --node-labels "$(node_label "$1")"
}

# Ends everything that runs on a node, as a power failure does, and starts it again: with another boot ID, an empty /run
# and no cgroups of pods, and with what its disk has.
reboot_node() { # NODE
    if [ "$1" = "$vm_node" ]; then
        reset_vm
        return
    fi
    # first, so that it reports the end of no container
    signal_program KILL "$1/kubelet" || true
    await 30 end_processes_once "$1" || die "processes of $1 have not ended within 30 s of SIGKILL."
    signal_program KILL "$1/mounts" || true
    await 30 is_dead "$1/mounts" || die "the mounts of $1 are still in use."
    await 30 remove_pod_cgroups_once "$1" || die "some cgroups of $1 still have processes."
    mount_node "$1"
    start_and_await "$1/containerd"
    start_and_await "$1/kubelet"
}

# Kills what is in a node's mount namespace, which are its programs and containerd's shims, except the process that keeps
# the namespace, and what is in its cgroups, which are its containers. Succeeds if nothing was there.
end_processes_once() { # NODE
    # shellcheck disable=SC2016
    "${in_lab[@]}" bash -c '
        read -r keeper start < "$1"
        mounts=$(readlink "/proc/$keeper/ns/mnt" | sed "s/[][]/\\\\&/g")
        pids=$({
            [ -z "$mounts" ] || find /proc/[0-9]*/ns/mnt -lname "$mounts" 2> /dev/null
            grep -lsF "$2" /proc/[0-9]*/cgroup
        } | cut -d / -f 3 | grep -vx "$keeper")
        [ -n "$pids" ] || exit 0
        kill -KILL $pids 2> /dev/null
        exit 1' - "$lab/run/$1/mounts.pid" "/$marker/$1/"
}

remove_pod_cgroups_once() { # NODE
    local group left=0
    for group in $(lab_cgroups); do
        find "$group/$1" -mindepth 1 -depth -type d -exec rmdir {} + 2> /dev/null || true
        [ -z "$(find "$group/$1" -mindepth 1 -type d -print -quit)" ] || left=1
    done
    return "$left"
}

containerd_answers() { in_node "$1" ctr version; }

# shellcheck disable=SC2016
kubelet_answers() { "${in_network[@]}" bash -c ': < "/dev/tcp/$1/10250"' - "$(node_address "$1")"; }

node_ready() { # NODE
    [ "$(kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' 2> /dev/null)" = True ]
}

nodes_ready() {
    local node
    for node in "${nodes[@]}"; do node_ready "$node" || return 1; done
}
