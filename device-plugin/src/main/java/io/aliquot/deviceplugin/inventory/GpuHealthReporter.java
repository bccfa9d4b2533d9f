package io.aliquot.deviceplugin.inventory;

import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.nvml.PhysicalGpu;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/**
 * Logs each change of a GPU's health, and counts healthy and unhealthy GPUs in the metrics.
 *
 * <p>Not thread-safe.
 */
public final class GpuHealthReporter {
    private static final Logger LOG = System.getLogger(GpuHealthReporter.class.getName());

    private final AgentMetrics metrics;
    private Map<String, String> unhealthyReasons = Map.of();

    public GpuHealthReporter(AgentMetrics metrics) {
        this.metrics = metrics;
    }

    /**
     * Reports the health of an inventory's GPUs.
     *
     * @param detected the GPUs that NVML lists
     */
    public void report(List<PhysicalGpu> detected, Inventory inventory) {
        Map<String, String> present = new HashMap<>();
        for (Gpu gpu : inventory.gpus()) {
            if (!gpu.healthy()) {
                present.put(gpu.uuid(), "NVML no longer lists it");
            }
        }
        for (PhysicalGpu gpu : detected) {
            gpu.health().unhealthyReason().ifPresent(reason -> present.put(gpu.uuid(), reason));
        }
        logChanges(present);
        unhealthyReasons = present;
        metrics.gpus(inventory.gpus().size() - present.size(), present.size());
    }

    private void logChanges(Map<String, String> present) {
        var uuids = new TreeSet<>(present.keySet());
        uuids.addAll(unhealthyReasons.keySet());
        for (String uuid : uuids) {
            String reason = present.getOrDefault(uuid, "");
            if (reason.equals(unhealthyReasons.getOrDefault(uuid, ""))) {
                continue;
            }
            if (reason.isEmpty()) {
                LOG.log(Level.INFO, "GPU {0} is healthy again", uuid);
            } else {
                LOG.log(Level.ERROR, "GPU {0} is unhealthy and takes no new vGPU: {1}", uuid, reason);
            }
        }
    }
}
