package io.aliquot.deviceplugin.health;

import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageHistory.HealthChange;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The latest changes of the health of the inventory's GPUs since this process has started. Thread-safe. */
public final class HealthHistory {
    private final Map<String, Deque<HealthChange>> byGpu = new HashMap<>();

    /** Takes note of what has changed; a GPU that is healthy from the start has no change. */
    synchronized void add(Map<String, GpuHealth> health, Instant now) {
        byGpu.keySet().retainAll(health.keySet());
        health.forEach((uuid, one) -> {
            Deque<HealthChange> changes = byGpu.computeIfAbsent(uuid, unused -> new ArrayDeque<>());
            HealthChange change = one.unhealthy()
                    .map(unhealthy -> new HealthChange(
                            changes.isEmpty() && unhealthy.isSinceKnown() ? unhealthy.since() : now,
                            false,
                            unhealthy.reason()))
                    .orElse(new HealthChange(now, true, ""));
            boolean wasHealthy = changes.isEmpty() || changes.getLast().healthy();
            String reasonBefore = changes.isEmpty() ? "" : changes.getLast().reason();
            if (change.healthy() != wasHealthy || !change.reason().equals(reasonBefore)) {
                changes.add(change);
            }
            if (changes.size() > UsageHistory.MOST_HEALTH_CHANGES) {
                changes.remove();
            }
        });
    }

    /** The changes of a GPU's health, oldest first. */
    public synchronized List<HealthChange> of(String uuid) {
        return List.copyOf(byGpu.getOrDefault(uuid, new ArrayDeque<>()));
    }
}
