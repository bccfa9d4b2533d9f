package io.aliquot.scheduler.placement;

import io.aliquot.api.format.Quantity;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * CPU and memory of a node's host: a node's allocatable amount, or a pod's requests. A difference can be negative.
 *
 * @param cpuMillis CPU in thousandths of a core
 * @param memoryBytes memory in bytes
 */
public record HostResources(long cpuMillis, long memoryBytes) {
    public static final HostResources NONE = new HostResources(0, 0);

    /**
     * Reads {@code cpu} and {@code memory} of a resource list; an absent one is 0.
     *
     * @param amounts Kubernetes quantities as text, or objects whose text is one
     * @throws io.aliquot.api.format.FormatException if one is malformed
     */
    public static HostResources parse(Map<String, ?> amounts) {
        return new HostResources(amount(amounts.get("cpu"), 3), amount(amounts.get("memory"), 0));
    }

    private static long amount(@Nullable Object quantity, int digits) {
        return quantity == null ? 0 : Quantity.parse(quantity.toString()).scaled(digits);
    }

    public HostResources minus(HostResources other) {
        return new HostResources(cpuMillis - other.cpuMillis, memoryBytes - other.memoryBytes);
    }

    /** The larger amount of each. */
    public HostResources max(HostResources other) {
        return new HostResources(Math.max(cpuMillis, other.cpuMillis), Math.max(memoryBytes, other.memoryBytes));
    }

    public HostResources plus(HostResources other) {
        return new HostResources(cpuMillis + other.cpuMillis, memoryBytes + other.memoryBytes);
    }
}
