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
        logChanges(
                unhealthyReasons,
                reasons,
                Level.ERROR,
                "GPU {0} is unhealthy and takes no new vGPU: {1}",
                "GPU {0} is healthy again or gone");
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
        logChanges(
                slowdowns,
                slow,
                Level.WARNING,
                "The clocks of GPU {0} are slowed down: {1}",
                "The clocks of GPU {0} are no longer slowed down");
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

    /**
     * Logs which GPUs have something now that they had not before, and which no longer have anything.
     *
     * @param begins a message about a GPU and what it has
     * @param ends a message about a GPU
     */
    private static <T> void logChanges(
            Map<String, T> before, Map<String, T> now, Level level, String begins, String ends) {
        var uuids = new TreeSet<>(now.keySet());
        uuids.addAll(before.keySet());
        for (String uuid : uuids) {
            T what = now.get(uuid);
            if (what == null) {
                LOG.log(Level.INFO, ends, uuid);
            } else if (!what.equals(before.get(uuid))) {
                LOG.log(level, begins, uuid, what);
            }
        }
    }
}
