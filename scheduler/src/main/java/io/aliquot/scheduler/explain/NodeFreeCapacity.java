package io.aliquot.scheduler.explain;

import io.aliquot.api.Placement;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuFreeCapacity;
import io.aliquot.scheduler.placement.GpuSelection.Fits;
import io.aliquot.scheduler.placement.GpuSelector;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.Collection;
import java.util.List;
import java.util.Set;

/** A node's GPUs as they would be without some of its pods, or at their best. */
record NodeFreeCapacity(String node, List<GpuFreeCapacity> list) {
    static NodeFreeCapacity without(NodeView view, String uid) {
        // Most often the pod has nothing there, and what was summed up already will do.
        boolean there =
                view.holdings().stream().anyMatch(holding -> holding.pod().uid().equals(uid));
        return there ? without(view, Set.of(uid)) : new NodeFreeCapacity(view.name(), view.gpus());
    }

    static NodeFreeCapacity without(NodeView view, Collection<String> uids) {
        List<Holding> rest = view.holdings().stream()
                .filter(holding -> !uids.contains(holding.pod().uid()))
                .toList();
        return new NodeFreeCapacity(
                view.name(),
                view.gpus().stream()
                        .map(room -> new GpuFreeCapacity(
                                room.card(), sum(rest, room.gpu().uuid())))
                        .toList());
    }

    /** Without any pod, and if every GPU took new shares. */
    static NodeFreeCapacity emptyAndOpen(NodeView view) {
        return new NodeFreeCapacity(
                view.name(),
                view.gpus().stream()
                        .map(room -> new GpuFreeCapacity(room.card().opened(), GpuAmount.NOTHING))
                        .toList());
    }

    private static GpuAmount sum(List<Holding> holdings, String gpu) {
        long memoryMiB = 0;
        int cores = 0;
        int slots = 0;
        boolean exclusive = false;
        for (Holding holding : holdings) {
            GpuAmount amount = holding.perGpu().getOrDefault(gpu, GpuAmount.NOTHING);
            memoryMiB += amount.memoryMiB();
            cores += amount.cores();
            slots += amount.slots();
            exclusive |= amount.exclusive();
        }
        return new GpuAmount(memoryMiB, cores, slots, exclusive);
    }

    boolean hold(PodGpuRequest ask) {
        // Whether it fits doesn't depend on what is liked best.
        return GpuSelector.feasible(ask, list, Placement.BINPACK) instanceof Fits;
    }
}
