# shellcheck shell=bash
# The node whose GPUs Aliquot does not share: simulated GPUs with a driver that the lab installs, and NVIDIA's device
# plugin.

install_other_plugin() {
    find_lab
    install_driver "$other_node"
    kubectl apply -f "$root/lab/other-plugin/daemonset.yaml"
    kubectl --namespace nvidia-device-plugin rollout status daemonset/nvidia-device-plugin --timeout 120s
}

# As Aliquot's chart does on its own nodes, at the same paths: the node may become one of them.
install_driver() { # NODE
    local driver=$lab/$1/fake-driver
    mkdir -p "$driver"
    cp "$root"/native-shim/build/fake-driver/{libcuda.so.1,libnvidia-ml.so.1,nvidia-smi,aliquot-fake-driver} \
        "$root/lab/other-plugin/gpus" "$driver"
    in_node "$1" /run/node/fake-driver/aliquot-fake-driver install --root /var/lib/aliquot/fake-driver \
        --source /run/node/fake-driver --cdi /etc/cdi --gpus /run/node/fake-driver/gpus --node "$1"
}
