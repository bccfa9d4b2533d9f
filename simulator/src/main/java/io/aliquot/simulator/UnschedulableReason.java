package io.aliquot.simulator;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Why a pod fits nowhere. Where there is as much GPU left as it asks for, each node's part of that is kept from it by
 * something; the one that keeps the most counts.
 */
enum UnschedulableReason {
    /** It would not fit on any node if all were empty. */
    NEVER,
    /** Nodes have the GPUs, but not the CPU. */
    CPU,
    /** Nodes have the GPUs and the CPU, but not the memory. */
    MEMORY,
    /** The GPU that is left is not in the pieces that it needs. */
    FRAGMENTED,
    /** The GPUs are of models that it doesn't take. */
    MODEL,
    /** All nodes together don't have as much GPU left. */
    FULL;

    /** Why {@code demand} fits on none of {@code nodes}. */
    static UnschedulableReason of(DemandVector demand, List<Replay.Alike> nodes) {
        if (nodes.stream()
                .noneMatch(node -> FreeCapacity.of(node.room().shape()).fits(demand))) {
            return NEVER;
        }
        long left = 0;
        Map<UnschedulableReason, Long> kept = new EnumMap<>(UnschedulableReason.class);
        for (Replay.Alike node : nodes) {
            FreeCapacity room = node.room();
            left += (long) node.nodes() * room.free();
            // Who asks for no GPU finds any node as good as another.
            kept.merge(of(demand, room), (long) node.nodes() * (demand.gpus() == 0 ? 1 : room.free()), Long::sum);
        }
        if (demand.gpus() > 0 && left < nodes.get(0).room().takenBy(demand)) {
            return FULL;
        }
        return kept.entrySet().stream()
                .max(Map.Entry.comparingByValue())
                .orElseThrow()
                .getKey();
    }

    private static UnschedulableReason of(DemandVector demand, FreeCapacity room) {
        if (demand.gpus() > 0 && !demand.takes(room.shape())) {
            return MODEL;
        }
        int enough = 0;
        for (int gpu = 0; gpu < room.gpus(); gpu++) {
            enough += room.holds(gpu, demand) ? 1 : 0;
        }
        if (enough < demand.gpus()) {
            return FRAGMENTED;
        }
        return demand.cpuMillis() > room.cpuMillis() ? CPU : MEMORY;
    }

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}
