package io.aliquot.scheduler.placement;

/** CPU in thousandths of a core and memory in bytes: a node's allocatable, or a pod's requests. */
public record HostLoad(long cpuMillis, long memoryBytes) {
    public static final HostLoad NONE = new HostLoad(0, 0);

    public HostLoad minus(HostLoad other) {
        return new HostLoad(cpuMillis - other.cpuMillis, memoryBytes - other.memoryBytes);
    }

    public HostLoad plus(HostLoad other) {
        return new HostLoad(cpuMillis + other.cpuMillis, memoryBytes + other.memoryBytes);
    }
}
