package io.aliquot.scheduler.placement;

/** CPU in thousandths of a core and memory in bytes: a node's allocatable, or a pod's requests. */
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
