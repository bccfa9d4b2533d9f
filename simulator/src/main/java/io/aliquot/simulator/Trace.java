package io.aliquot.simulator;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.scheduler.placement.GpuCapacity;
import io.aliquot.scheduler.simulation.SimulatedNode;
import java.util.Collections;
import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;

/** Nodes, and workloads to replay on them. Immutable. */
final class Trace {
    /** A whole GPU, in thousandths. */
    static final int WHOLE = 1000;

    private final List<SimulatedNode> nodes;
    private final SortedMap<String, List<TracePod>> workloads;
    private final List<String> remarks;
    private final long capacity;
    private final int meanMiB;
    private final boolean uniformMemory;

    /**
     * Creates a trace.
     *
     * @param workloads the pods of each workload, by its name
     * @param remarks what the trace leaves out of its input, a sentence each
     */
    Trace(List<SimulatedNode> nodes, SortedMap<String, List<TracePod>> workloads, List<String> remarks) {
        this.nodes = List.copyOf(nodes);
        this.workloads = Collections.unmodifiableSortedMap(new TreeMap<>(workloads));
        this.remarks = List.copyOf(remarks);
        List<Gpu> gpus = nodes.stream()
                .flatMap(node -> node.gpus().stream())
                .filter(GpuCapacity::schedulable)
                .map(GpuCapacity::gpu)
                .toList();
        this.capacity = gpus.size() * (long) WHOLE;
        this.uniformMemory = gpus.stream().mapToInt(Gpu::memoryMiB).distinct().count() <= 1;
        this.meanMiB = (int) gpus.stream().mapToInt(Gpu::memoryMiB).average().orElse(1);
    }

    List<SimulatedNode> nodes() {
        return nodes;
    }

    SortedMap<String, List<TracePod>> workloads() {
        return workloads;
    }

    /** What the trace leaves out of its input, a sentence each. */
    List<String> remarks() {
        return remarks;
    }

    /** Mean memory of the schedulable GPUs. */
    int meanMiB() {
        return meanMiB;
    }

    /** Whether all schedulable GPUs have the same memory. */
    boolean uniformMemory() {
        return uniformMemory;
    }

    /** Capacity of all schedulable GPUs, in thousandths of a GPU. */
    long capacity() {
        return capacity;
    }

    /**
     * The GPU capacity that a pod requests, in thousandths of a GPU: of memory or of cores, whichever is more. Memory
     * is measured by the mean memory of the GPUs, since the pod's GPU is not known yet.
     */
    long requestedGpu(TracePod pod) {
        return pod.request().peak(this::requestedGpu);
    }

    private long requestedGpu(GpuRequest request) {
        if (request.exclusive()) {
            return (long) request.vgpus() * WHOLE;
        }
        long memory = (long) Math.min(request.memory().on(meanMiB), meanMiB) * WHOLE / meanMiB;
        return request.vgpus() * Math.max(1, Math.max(memory, request.cores() * (long) WHOLE / 100));
    }
}
