# shellcheck shell=bash
# Installs Aliquot in the cluster, with its Helm chart, the lab's images and simulated GPUs.

release=aliquot
aliquot_images=(kube-scheduler aliquot-scheduler aliquot-device-plugin aliquot-fake-driver nvidia-device-plugin sample)

# Helm keeps its files in the lab's folder, and is killed when its caller ends.
helm() {
    HELM_CACHE_HOME=$lab/helm/cache HELM_CONFIG_HOME=$lab/helm/config HELM_DATA_HOME=$lab/helm/data \
        setpriv --pdeathsig KILL "${in_network[@]}" "$bin/helm" --kubeconfig "$KUBECONFIG" "$@"
}

# A pod annotation with the hash of the images' contents. The images' names never change; the hash restarts the pods.
image_annotation() { # CHART-VALUE IMAGE...
    local value=$1
    shift
    printf '%s.podAnnotations.lab\\.aliquot\\.io/images=%s' "$value" "$(for name in "$@"; do image_hash "$name"; done | sha256sum | cut -c1-16)"
}

install_aliquot() {
    local object
    find_lab
    # Helm refuses to upgrade a release that a killed Helm left "pending"; without the record it adopts the objects.
    kubectl --namespace "$release" delete secret --ignore-not-found \
        --selector 'owner=helm,status in (pending-install,pending-upgrade,pending-rollback)'
    helm upgrade --install "$release" "$root/charts/aliquot" --namespace "$release" --create-namespace \
        --values "$root/lab/values.yaml" --values "$root/lab/gpus.yaml" \
        --set-string "$(image_annotation scheduler aliquot-scheduler kube-scheduler)" \
        --set-string "$(image_annotation devicePlugin aliquot-device-plugin aliquot-fake-driver)"
    for object in daemonset/aliquot-device-plugin deployment/aliquot-scheduler deployment/aliquot-api; do
        kubectl --namespace "$release" rollout status "$object" --timeout 300s || { describe_installation; return 1; }
    done
    kubectl wait --for=condition=Available apiservice/v1alpha1.gpu.aliquot.io --timeout 120s || { describe_installation; return 1; }
    await 120 gpus_registered "${shared_nodes[@]}" || { echo "the nodes have no allocatable aliquot.io/vgpu after 120 s"; describe_installation; return 1; }
}

gpus_registered() { # NODE...
    local node count
    for node; do
        count=$(kubectl get node "$node" -o 'jsonpath={.status.allocatable.aliquot\.io/vgpu}')
        [ "${count:-0}" != 0 ] || return 1
    done
}

# Prints events, pods, and the logs of pods that are not ready.
describe_installation() {
    local pod
    kubectl --namespace "$release" get events --sort-by .lastTimestamp | tail -n 10
    kubectl --namespace "$release" get pods -o wide
    for pod in $(kubectl --namespace "$release" get pods \
        -o 'jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{" "}{.metadata.name}{"\n"}{end}' |
        sed -n 's/^False //p'); do
        echo "--- $pod"
        kubectl --namespace "$release" logs "$pod" --all-containers --tail 10 || true
    done
}
