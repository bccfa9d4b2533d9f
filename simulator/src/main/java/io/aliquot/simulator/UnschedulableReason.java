package io.aliquot.simulator;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Why a pod fits on no node. If the free GPU capacity of all nodes suffices, each node has one reason against the pod;
 * the pod's reason is the one that withholds the most free GPU capacity.
 */
enum UnschedulableReason {
    /** The pod would not fit on any node even if all were empty. */
    NEVER,
    /** Nodes have the GPUs, but not the CPU. */
    CPU,
    /** Nodes have the GPUs and the CPU, but not the memory. */
    MEMORY,
    /** The free GPU capacity is split into too small pieces. */
    FRAGMENTED,
    /** The pod does not accept the models of the GPUs. */
    MODEL,
    /** All nodes together have too little free GPU capacity. */
    FULL;

    /** Why {@code demand} fits on none of {@code nodes}. */
    static UnschedulableReason of(DemandVector demand, List<Replay.NodeGroup> nodes) {
        if (nodes.stream()
                .noneMatch(node -> FreeCapacity.of(node.capacity().shape()).fits(demand))) {
            return NEVER;
        }
        long free = 0;
        Map<UnschedulableReason, Long> withheld = new EnumMap<>(UnschedulableReason.class);
        for (Replay.NodeGroup group : nodes) {
            FreeCapacity node = group.capacity();
            free += (long) group.nodes() * node.free();
            // For a pod without GPUs every node has the same weight.
            withheld.merge(of(demand, node), (long) group.nodes() * (demand.gpus() == 0 ? 1 : node.free()), Long::sum);
        }
        if (demand.gpus() > 0 && free < nodes.get(0).capacity().shape().takenBy(demand)) {
            return FULL;
        }
        return withheld.entrySet().stream()
                .max(Map.Entry.comparingByValue())
                .orElseThrow()
                .getKey();
    }

    private static UnschedulableReason of(DemandVector demand, FreeCapacity node) {
        if (demand.gpus() > 0 && !demand.takes(node.shape())) {
            return MODEL;
        }
        int usableGpus = 0;
        for (int gpu = 0; gpu < node.gpus(); gpu++) {
            usableGpus += node.holds(gpu, demand) ? 1 : 0;
        }
        if (usableGpus < demand.gpus()) {
            return FRAGMENTED;
        }
        return demand.cpuMillis() > node.cpuMillis() ? CPU : MEMORY;
    }

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}
