package io.aliquot.deviceplugin.node;

import java.util.Set;

/**
 * A device that a driver of dynamic resource allocation publishes for the node.
 *
 * @param driver such as {@code gpu.nvidia.com}
 * @param id {@code pool/device}
 * @param gpus the UUIDs of GPUs among its attributes: its own, or that of the GPU that it is a part of
 */
public record DraDevice(String driver, String id, Set<String> gpus) {
    public DraDevice {
        gpus = Set.copyOf(gpus);
    }
}
