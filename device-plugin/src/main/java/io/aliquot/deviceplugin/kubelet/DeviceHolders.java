package io.aliquot.deviceplugin.kubelet;

import java.util.List;

/** Which pods of the node have which devices of any device plugin, as the kubelet says. */
public sealed interface DeviceHolders {
    /** NVIDIA's driver of dynamic resource allocation for GPUs (github.com/NVIDIA/k8s-dra-driver-gpu). */
    String NVIDIA_DRIVER = "gpu.nvidia.com";

    /**
     * The kubelet's answer. It leaves out ordinary init containers, and older kubelets still list pods that have ended.
     *
     * @param list one element for each container and resource
     */
    record Known(List<Holder> list) implements DeviceHolders {
        public Known {
            list = List.copyOf(list);
        }
    }

    /**
     * The kubelet did not answer.
     *
     * @param reason for the administrator
     */
    record Unavailable(String reason) implements DeviceHolders {}

    /**
     * The devices that a container got through one resource.
     *
     * @param pod its namespace and name, such as {@code team/train}
     * @param container its name; empty: unknown
     * @param resource such as {@code nvidia.com/gpu}; of devices of a claim their driver, which has no slash
     * @param deviceIds as the device plugin named them; of devices of a claim {@code pool/device}
     */
    record Holder(String pod, String container, String resource, List<String> deviceIds) {
        public Holder {
            deviceIds = List.copyOf(deviceIds);
        }
    }
}
