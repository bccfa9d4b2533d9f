package io.aliquot.scheduler.placement;

import java.util.Set;

/**
 * Adds up the CPU and memory that a pod requests, as kube-scheduler does (k8s.io/component-helpers, resource/helpers.go,
 * PodRequests): the larger of what its containers request while they run and what they request while they start (KEP-753
 * for sidecars), replaced by pod-level requests (KEP-2837), plus the overhead of its RuntimeClass. The caller determines what one container requests.
 */
public final class PodHostRequests {
    private static final long NOT_SET = -1;

    private HostResources running = HostResources.NONE;
    private HostResources sidecars = HostResources.NONE;
    private HostResources starting = HostResources.NONE;
    private HostResources overhead = HostResources.NONE;
    private long podCpuMillis = NOT_SET;
    private long podMemoryBytes = NOT_SET;

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

    /**
     * Sets what the pod itself requests; of CPU and memory, it replaces what it names.
     *
     * @param named the names of the resources that the pod requests
     */
    public void podLevel(Set<String> named, HostResources requests) {
        podCpuMillis = named.contains("cpu") ? requests.cpuMillis() : NOT_SET;
        podMemoryBytes = named.contains("memory") ? requests.memoryBytes() : NOT_SET;
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
