# shellcheck shell=bash
# The cluster: its network, certificates and control plane; starting and stopping it.

# Kubernetes' programs, etcd and Helm, a copy: the cache can lose them while the cluster runs.
bin=$lab/bin

control_plane=(etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy)

all_programs() {
    printf '%s\n' "${control_plane[@]}"
    local node
    for node in "${nodes[@]}"; do printf '%s\n' "$node/containerd" "$node/kubelet"; done
}

# --kubeconfig, since the variable KUBECONFIG is a list and splits a path at its colons.
kubectl() {
    KUBECACHEDIR=$lab/kubectl-cache KUBERC=off "${in_network[@]}" "$bin/kubectl" --kubeconfig "$KUBECONFIG" "$@"
}

# Gives this end of a veth pair all nodes' addresses. The default route ends in the pair: no packet leaves the network.
make_network() {
    # shellcheck disable=SC2016
    "${in_lab[@]}" bash -c '
        set -e; subnet=$1 n=0; shift
        ip link set lo up
        ip link add lab0 type veth peer name lab1
        ip link set lab1 up; ip link set lab0 up
        ip addr add "$subnet.0.1/24" dev lab0
        for node in "$@"; do n=$((n + 1)); ip addr add "$subnet.0.1$n/24" dev lab0; done
        ip route add default dev lab0
        echo 1 > /proc/sys/net/ipv4/ip_forward' - "$subnet" "${nodes[@]}"
}

# --- certificates ---------------------------------------------------------------------------------------------------

make_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }

certificate() { # NAME SUBJECT USAGE [ALTERNATIVE NAMES [CA]]
    local file=$lab/pki/$1 ca=$lab/pki/${5:-ca}
    make_key "$file.key"
    openssl req -new -key "$file.key" -subj "$2" -out "$file.csr"
    openssl x509 -req -in "$file.csr" -CA "$ca.crt" -CAkey "$ca.key" -CAcreateserial -days 3650 -out "$file.crt" \
        -extfile <(printf 'extendedKeyUsage=%s\n%s\n' "$3" "${4:+subjectAltName=$4}") 2> /dev/null
}

kubeconfig() { # NAME FILE
    cat > "$2" <<-END
		apiVersion: v1
		kind: Config
		clusters:
		- name: lab
		  cluster:
		    server: https://$api_address:6443
		    certificate-authority-data: $(base64 -w 0 "$lab/pki/ca.crt")
		users:
		- name: $1
		  user:
		    client-certificate-data: $(base64 -w 0 "$lab/pki/$1.crt")
		    client-key-data: $(base64 -w 0 "$lab/pki/$1.key")
		contexts:
		- name: lab
		  context: {cluster: lab, user: $1}
		current-context: lab
	END
    chmod 600 "$2"
}

make_certificates() {
    local pki=$lab/pki name
    mkdir -p "$pki"
    chmod 700 "$pki"
    make_key "$pki/ca.key"
    openssl req -x509 -new -key "$pki/ca.key" -days 3650 -subj /CN=aliquot-lab -out "$pki/ca.crt"
    make_key "$pki/service-accounts.key"
    certificate kube-apiserver /CN=kube-apiserver serverAuth,clientAuth \
        "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:$api_address,IP:$subnet.128.1"
    # the API server's client certificate for kubelets
    certificate kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client clientAuth
    # what the API server forwards requests to aggregated APIs with: a CA of its own, since each certificate of the other
    # CA is a user's
    make_key "$pki/front-proxy-ca.key"
    openssl req -x509 -new -key "$pki/front-proxy-ca.key" -days 3650 -subj /CN=aliquot-lab-front-proxy \
        -out "$pki/front-proxy-ca.crt"
    certificate front-proxy-client /CN=front-proxy-client clientAuth "" front-proxy-ca
    certificate admin /O=system:masters/CN=admin clientAuth
    kubeconfig admin "$KUBECONFIG"
    for name in kube-controller-manager kube-scheduler kube-proxy; do
        certificate $name /CN=system:$name clientAuth
        kubeconfig $name "$lab/run/$name.kubeconfig"
    done
    for name in "${nodes[@]}"; do
        certificate "$name" "/O=system:nodes/CN=system:node:$name" clientAuth
    done
}

# --- control plane --------------------------------------------------------------------------------------------------

start_program() { # NAME: one of all_programs
    local pki=$lab/pki
    case $1 in
        etcd)
            # No fsync: the data survives SIGKILL, which the lab's tests send, but no power failure.
            launch etcd "$bin/etcd" --data-dir "$lab/etcd" --unsafe-no-fsync --log-level error \
                --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
                --listen-peer-urls http://127.0.0.1:0
            ;;
        kube-apiserver)
            launch kube-apiserver "$bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
                --secure-port=6443 --advertise-address="$api_address" --service-cluster-ip-range="$service_cidr" \
                --tls-cert-file="$pki/kube-apiserver.crt" --tls-private-key-file="$pki/kube-apiserver.key" \
                --requestheader-client-ca-file="$pki/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy-client \
                --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
                --requestheader-extra-headers-prefix=X-Remote-Extra- \
                --proxy-client-cert-file="$pki/front-proxy-client.crt" --proxy-client-key-file="$pki/front-proxy-client.key" \
                --client-ca-file="$pki/ca.crt" --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction,ExtendedResourceToleration \
                --service-account-issuer=https://kubernetes.default.svc \
                --service-account-signing-key-file="$pki/service-accounts.key" \
                --service-account-key-file="$pki/service-accounts.key" \
                --kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key" \
                --kubelet-preferred-address-types=InternalIP --allow-privileged \
                --audit-policy-file="$root/lab/audit-policy.yaml" --audit-log-path="$lab/log/audit.log"
            ;;
        kube-controller-manager)
            launch kube-controller-manager "$bin/kube-controller-manager" --kubeconfig "$lab/run/kube-controller-manager.kubeconfig" \
                --service-account-private-key-file="$pki/service-accounts.key" --root-ca-file="$pki/ca.crt" \
                --use-service-account-credentials --leader-elect=false
            ;;
        kube-scheduler) # the cluster's default scheduler
            launch kube-scheduler "$bin/kube-scheduler" --kubeconfig "$lab/run/kube-scheduler.kubeconfig" --leader-elect=false
            ;;
        kube-proxy)
            cat > "$lab/run/kube-proxy.yaml" <<-END
				apiVersion: kubeproxy.config.k8s.io/v1alpha1
				kind: KubeProxyConfiguration
				clientConnection: {kubeconfig: "$lab/run/kube-proxy.kubeconfig"}
				mode: nftables
				hostnameOverride: ${nodes[0]}
				clusterCIDR: $subnet.96.0/19
				# zero leaves the machine's conntrack settings as they are
				conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
			END
            launch kube-proxy "$bin/kube-proxy" --config "$lab/run/kube-proxy.yaml"
            ;;
        node*/containerd) start_containerd "${1%/*}" ;;
        node*/kubelet) start_kubelet "${1%/*}" ;;
        *) die "there is no program '$1' in the lab." "Its programs: $(all_programs | tr '\n' ' ')" ;;
    esac
}

# Succeeds if a started program serves requests, as far as it can without the other programs.
program_answers() { # NAME
    case $1 in
        node*/containerd) containerd_answers "${1%/*}" ;;
        node*/kubelet) kubelet_answers "${1%/*}" ;;
        *) ! is_dead "$1" ;;
    esac
}

answers_or_dead() { program_answers "$1" || is_dead "$1"; }

# Starts a program and returns when it serves requests. Restarts one that exits at its start, as a service manager does.
start_and_await() { # NAME
    local attempt
    # shellcheck disable=SC2034
    for attempt in 1 2 3; do
        start_program "$1"
        await_or_die 60 "$1 did not answer" "$1.log" answers_or_dead "$1"
        is_dead "$1" || return 0
        say "$1 exited at its start:"
        log_end "$1.log"
    done
    die "$1 exited at each of three starts." "See $lab/log/$1.log."
}

api_ready() { [ "$(kubectl get --raw /readyz 2> /dev/null)" = ok ]; }

log_end() { tail -n 15 "$lab/log/$1" | cut -c1-300 | sed 's/^/    /'; }

await_or_die() { # SECONDS WHAT LOG COMMAND...
    local seconds=$1 what=$2 log=$3
    shift 3
    await "$seconds" "$@" && return
    log_end "$log" >&2 || true
    die "$what within $seconds s." "See $lab/log/$log."
}

# --- up and down ----------------------------------------------------------------------------------------------------

# A fingerprint of what a cluster is made from; the lab makes a new cluster when it changes.
cluster_sources() {
    (cd "$root" && printf '%s %s %s %s\n' "$(cluster_programs)" "$(runtime_programs)" "$(nvidia_runtime_program)" \
        "$(cat lab/common.sh lab/namespaces.sh lab/init.sh lab/cluster.sh lab/node.sh lab/node-mounts.sh lab/audit-policy.yaml | sha256sum)")
}

# Succeeds if the cluster is complete and up to date, after restarting programs that a test has killed.
repair_cluster() {
    find_lab && [ -f "$lab/run/complete" ] && [ "$(cat "$lab/run/complete")" = "$(cluster_sources)" ] || return 1
    local program
    # shellcheck disable=SC2046
    for program in $(dead_programs $(all_programs)); do
        say "Restarting $program, which is not running"
        start_and_await "$program"
    done
    await 120 api_ready && await 120 nodes_ready
}

make_cluster() {
    local node
    say "Network and certificates ($(date +%T))"
    echo "$kubernetes_version" > "$lab/run/kubernetes"
    cp -al "$(cluster_programs)/." "$bin" 2> /dev/null || cp -a "$(cluster_programs)/." "$bin"
    make_network
    make_certificates
    start_program etcd
    start_program kube-apiserver
    for node in "${nodes[@]}"; do
        make_node "$node"
        start_containerd "$node"
    done
    await_or_die 120 "the API server did not become ready" kube-apiserver.log api_ready
    start_program kube-controller-manager
    start_program kube-scheduler
    start_program kube-proxy
    for node in "${nodes[@]}"; do start_kubelet "$node"; done
    await_or_die 180 "the nodes did not become ready" "${nodes[0]}/kubelet.log" nodes_ready
    await_or_die 120 "the default service account did not appear" kube-controller-manager.log kubectl -n default get serviceaccount default
}

remove_cluster() {
    end_namespaces
    remove_cgroups
    # all but the logs and the test reports
    find "$lab" -mindepth 1 -maxdepth 1 ! -name log ! -name reports -exec rm -rf {} + 2> /dev/null || true
}

# Starts the cluster without Aliquot, from any state that an earlier command left.
cluster_up() {
    if find_lab; then
        repair_cluster && return
        step down "Removing an incomplete or outdated lab" uncontained remove_cluster
    elif [ -d "$lab/run" ]; then
        step down "Removing the remains of a killed lab" uncontained remove_cluster
    fi
    rm -rf "$lab/log"
    make_namespaces
    step cluster "Starting Kubernetes $kubernetes_version" uncontained make_cluster_in_lab
    cluster_sources > "$lab/run/complete"
}

make_cluster_in_lab() { find_lab && make_cluster; }
