package io.aliquot.deviceplugin.inventory;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.metrics.AgentMetrics.GpuState;
import io.aliquot.deviceplugin.nvml.GpuCondition.Slowdown;
import io.aliquot.deviceplugin.nvml.PhysicalGpu;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;

/**
 * Logs each change of a GPU's health and of what slows it down, and keeps both in the metrics.
 *
 * <p>Not thread-safe.
 */
public final class GpuHealthReporter {
    private static final Logger LOG = System.getLogger(GpuHealthReporter.class.getName());

    private final AgentMetrics metrics;
    private final String node;
    private Map<String, String> unhealthyReasons = Map.of();
    private Map<String, Set<String>> slowdowns = Map.of();

    /** Reports the GPUs of a node. */
    public GpuHealthReporter(AgentMetrics metrics, String node) {
        this.metrics = metrics;
        this.node = node;
    }

    /**
     * Reports the health of an inventory's GPUs.
     *
     * @param detected the GPUs that NVML lists
     */
    public void report(List<PhysicalGpu> detected, Inventory inventory) {
        Map<String, String> reasons = new HashMap<>();
        for (Gpu gpu : inventory.gpus()) {
            gpu.health()
                    .unhealthy()
                    .map(GpuHealth.Unhealthy::reason)
                    .ifPresent(reason -> reasons.put(gpu.uuid(), reason));
        }
        logHealth(reasons);
        unhealthyReasons = reasons;
        Map<String, Set<String>> slow = new HashMap<>();
        for (PhysicalGpu gpu : detected) {
            if (!gpu.condition().slowdowns().isEmpty()) {
                slow.put(
                        gpu.uuid(),
                        gpu.condition().slowdowns().stream()
                                .map(GpuHealthReporter::label)
                                .collect(Collectors.toSet()));
            }
        }
        logSlowdowns(slow);
        slowdowns = slow;
        metrics.gpus(
                node,
                inventory.gpus().stream()
                        .map(gpu -> new GpuState(
                                gpu.uuid(),
                                gpu.model(),
                                reasons.getOrDefault(gpu.uuid(), ""),
                                slow.getOrDefault(gpu.uuid(), Set.of())))
                        .toList());
    }

    private static String label(Slowdown slowdown) {
        return slowdown.name().toLowerCase(Locale.ROOT);
    }

    private void logHealth(Map<String, String> present) {
        var uuids = new TreeSet<>(present.keySet());
        uuids.addAll(unhealthyReasons.keySet());
        for (String uuid : uuids) {
            String reason = present.getOrDefault(uuid, "");
            if (reason.equals(unhealthyReasons.getOrDefault(uuid, ""))) {
                continue;
            }
            if (reason.isEmpty()) {
                LOG.log(Level.INFO, "GPU {0} is healthy again or gone", uuid);
            } else {
                LOG.log(Level.ERROR, "GPU {0} is unhealthy and takes no new vGPU: {1}", uuid, reason);
            }
        }
    }

    private void logSlowdowns(Map<String, Set<String>> present) {
        present.forEach((uuid, causes) -> {
            if (!causes.equals(slowdowns.get(uuid))) {
                LOG.log(Level.WARNING, "The clocks of GPU {0} are slowed down: {1}", uuid, causes);
            }
        });
        slowdowns.keySet().stream()
                .filter(uuid -> !present.containsKey(uuid))
                .forEach(uuid -> LOG.log(Level.INFO, "The clocks of GPU {0} are no longer slowed down", uuid));
    }
}
