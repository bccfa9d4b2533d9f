package io.aliquot.deviceplugin.nvml;

import java.util.Optional;

/**
 * Whether new vGPUs may be placed on a GPU. A GPU is unhealthy
 *
 * <ul>
 *   <li>in MIG mode, when it is lost, when it must be reset, or when NVML cannot read its memory ({@link Nvml#gpus});
 *   <li>after a critical XID error, until the agent restarts ({@link XidWatcher});
 *   <li>while NVML as a whole does not answer ({@link NvmlSession});
 *   <li>when NVML does not list it although the Node's inventory does
 *       ({@link io.aliquot.deviceplugin.inventory.InventoryBuilder}).
 * </ul>
 */
public sealed interface GpuHealth {
    record Healthy() implements GpuHealth {}

    /**
     * New vGPUs must not be placed on the GPU; running ones stay.
     *
     * @param reason for a log line: what is wrong and, where known, what to do
     */
    record Unhealthy(String reason) implements GpuHealth {
        public Unhealthy {
            if (reason.isBlank()) {
                throw new IllegalArgumentException("expected the reason why a GPU is unhealthy, found none");
            }
        }
    }

    /** Why the GPU is unhealthy; empty for a healthy one. */
    default Optional<String> unhealthyReason() {
        return this instanceof Unhealthy unhealthy ? Optional.of(unhealthy.reason()) : Optional.empty();
    }
}
