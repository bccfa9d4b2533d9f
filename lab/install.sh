# shellcheck shell=bash
# Aliquot into the cluster: by its own chart, with the lab's images and fake GPUs.

release=aliquot
aliquot_images=(kube-scheduler aliquot-scheduler aliquot-device-plugin sample)

# Helm keeps its own files in the lab's folder too.
helm() {
    HELM_CACHE_HOME=$lab/helm/cache HELM_CONFIG_HOME=$lab/helm/config HELM_DATA_HOME=$lab/helm/data \
        "${in_network[@]}" "$(helm_program)" --kubeconfig "$KUBECONFIG" "$@"
}

install_aliquot() {
    find_world
    helm upgrade --install "$release" "$root/charts/aliquot" --namespace "$release" --create-namespace \
        --values "$root/lab/values.yaml" --values "$root/lab/gpus.yaml"
    # The images' names never change; what runs them is started anew when their content has.
    local images object
    images=$(for name in "${aliquot_images[@]}"; do image_hash "$name"; done | sha256sum | cut -c1-16)
    for object in deployment/aliquot-scheduler daemonset/aliquot-device-plugin; do
        kubectl --namespace "$release" patch "$object" --type merge --patch \
            "{\"spec\":{\"template\":{\"metadata\":{\"annotations\":{\"lab.aliquot.io/images\":\"$images\"}}}}}"
    done
    for object in daemonset/aliquot-device-plugin deployment/aliquot-scheduler; do
        kubectl --namespace "$release" rollout status "$object" --timeout 120s || { describe_installation; return 1; }
    done
    await 60 gpus_registered || { echo "the nodes show no nvidia.com/gpu after 60 s"; describe_installation; return 1; }
}

gpus_registered() {
    local node count
    for node in "${nodes[@]}"; do
        count=$(kubectl get node "$node" -o 'jsonpath={.status.allocatable.nvidia\.com/gpu}')
        [ "${count:-0}" != 0 ] || return 1
    done
}

# What one would look at to find out why it doesn't start.
describe_installation() {
    kubectl --namespace "$release" get pods -o wide
    kubectl --namespace "$release" get events --sort-by .lastTimestamp | tail -n 15
    local pod
    for pod in $(kubectl --namespace "$release" get pods -o name); do
        echo "--- $pod"
        kubectl --namespace "$release" logs "$pod" --all-containers --tail 15 --prefix || true
    done
}
