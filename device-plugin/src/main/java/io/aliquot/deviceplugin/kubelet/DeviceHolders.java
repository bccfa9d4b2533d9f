package io.aliquot.deviceplugin.kubelet;

import java.util.List;

/** Which pods of the node have which devices of any device plugin, as the kubelet says. */
public sealed interface DeviceHolders {
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
     * @param resource such as {@code nvidia.com/gpu}
     * @param deviceIds as the device plugin named them
     */
    record Holder(String pod, String container, String resource, List<String> deviceIds) {
        public Holder {
            deviceIds = List.copyOf(deviceIds);
        }
    }
}
