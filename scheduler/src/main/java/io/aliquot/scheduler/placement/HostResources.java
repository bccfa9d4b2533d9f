package io.aliquot.scheduler.placement;

/**
 * CPU and memory of a node's host: a node's allocatable amount, or a pod's requests. A difference can be negative.
 *
 * @param cpuMillis CPU in thousandths of a core
 * @param memoryBytes memory in bytes
 */
public record HostResources(long cpuMillis, long memoryBytes) {
    public static final HostResources NONE = new HostResources(0, 0);

    public HostResources minus(HostResources other) {
        return new HostResources(cpuMillis - other.cpuMillis, memoryBytes - other.memoryBytes);
    }

    /** The larger amount of each. */
    HostResources max(HostResources other) {
        return new HostResources(Math.max(cpuMillis, other.cpuMillis), Math.max(memoryBytes, other.memoryBytes));
    }

    public HostResources plus(HostResources other) {
        return new HostResources(cpuMillis + other.cpuMillis, memoryBytes + other.memoryBytes);
    }
}
