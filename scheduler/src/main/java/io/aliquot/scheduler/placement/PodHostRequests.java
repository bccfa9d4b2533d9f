package io.aliquot.scheduler.placement;

/**
 * Adds up the CPU and memory that a pod requests, as kube-scheduler does (k8s.io/component-helpers, resource/helpers.go,
 * PodRequests): the larger of what its containers request while they run and what they request while they start (KEP-753
 * for sidecars), replaced by pod-level requests (KEP-2837), plus the overhead of its RuntimeClass.
 */
public final class PodHostRequests {
    private HostResources running = HostResources.NONE;
    private HostResources sidecars = HostResources.NONE;
    private HostResources starting = HostResources.NONE;
    private HostResources overhead = HostResources.NONE;
    private long podCpuMillis = -1;
    private long podMemoryBytes = -1;

    /** Adds a container; init containers and sidecars in the pod's order. */
    public void add(ContainerKind kind, HostResources requests) {
        switch (kind) {
            case APP -> running = running.plus(requests);
            case SIDECAR -> {
                running = running.plus(requests);
                sidecars = sidecars.plus(requests);
                starting = starting.max(sidecars);
            }
            case INIT -> starting = starting.max(sidecars.plus(requests));
        }
    }

    /** Sets the CPU that the pod itself requests, in place of its containers' sum. */
    public void podCpu(long millis) {
        podCpuMillis = millis;
    }

    /** Sets the memory that the pod itself requests, in place of its containers' sum. */
    public void podMemory(long bytes) {
        podMemoryBytes = bytes;
    }

    public void overhead(HostResources amount) {
        overhead = amount;
    }

    public HostResources total() {
        HostResources containers = running.max(starting);
        return new HostResources(
                        podCpuMillis >= 0 ? podCpuMillis : containers.cpuMillis(),
                        podMemoryBytes >= 0 ? podMemoryBytes : containers.memoryBytes())
                .plus(overhead);
    }
}
