package io.aliquot.simulator;

import io.aliquot.api.Gpu;
import io.aliquot.api.GpuRequest;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.GpuCapacity;
import java.util.Collections;
import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;

/** Nodes, and workloads to be run on them. Immutable. */
final class Trace {
    /** What a GPU is counted as: thousandths. */
    static final int WHOLE = 1000;

    private final List<Node> nodes;
    private final SortedMap<String, List<TracePod>> workloads;
    private final List<String> remarks;
    private final long capacity;
    private final int meanMiB;
    private final boolean alike;

    /**
     * A trace.
     *
     * @param workloads pods of each, by its name
     * @param remarks what of the input is not in it, a sentence each
     */
    Trace(List<Node> nodes, SortedMap<String, List<TracePod>> workloads, List<String> remarks) {
        this.nodes = List.copyOf(nodes);
        this.workloads = Collections.unmodifiableSortedMap(new TreeMap<>(workloads));
        this.remarks = List.copyOf(remarks);
        List<Gpu> gpus = nodes.stream()
                .flatMap(node -> node.facts().cards().list().stream())
                .filter(GpuCapacity::open)
                .map(GpuCapacity::gpu)
                .toList();
        this.capacity = gpus.size() * (long) WHOLE;
        this.alike = gpus.stream().mapToInt(Gpu::memoryMiB).distinct().count() <= 1;
        this.meanMiB = (int) gpus.stream().mapToInt(Gpu::memoryMiB).average().orElse(1);
    }

    List<Node> nodes() {
        return nodes;
    }

    SortedMap<String, List<TracePod>> workloads() {
        return workloads;
    }

    /** What of the input is not in it, a sentence each. */
    List<String> remarks() {
        return remarks;
    }

    /** Memory of a GPU in the mean, of those that take shares. */
    int meanMiB() {
        return meanMiB;
    }

    /** Whether all of those have the same memory. */
    boolean alike() {
        return alike;
    }

    /** GPU of all nodes together, in thousandths; of one that is unhealthy or cordoned nothing. */
    long capacity() {
        return capacity;
    }

    /**
     * What a pod asks for, in thousandths of a GPU: of each the memory or the cores, whichever is more. Memory is measured
     * by what the GPUs have in the mean, for which of them the pod will get is not known.
     */
    long asked(TracePod pod) {
        long peak = 0;
        long running = 0;
        for (ContainerGpuRequest container : pod.ask().containers()) {
            long asked = asked(container.request());
            peak = Math.max(peak, running + asked);
            if (container.kind() != ContainerKind.INIT) {
                running += asked;
            }
        }
        return peak;
    }

    private long asked(GpuRequest request) {
        if (request.exclusive()) {
            return (long) request.vgpus() * WHOLE;
        }
        long memory = (long) Math.min(request.memory().on(meanMiB), meanMiB) * WHOLE / meanMiB;
        return request.vgpus() * Math.max(1, Math.max(memory, request.cores() * (long) WHOLE / 100));
    }
}
