package io.aliquot.scheduler.explain;

import io.aliquot.api.Placement;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.placement.Amount;
import io.aliquot.scheduler.placement.Choice.Fits;
import io.aliquot.scheduler.placement.Chooser;
import io.aliquot.scheduler.placement.GpuRoom;
import io.aliquot.scheduler.placement.PodAsk;
import java.util.Collection;
import java.util.List;
import java.util.Set;

/** A node's GPUs as they would be without some of its pods, or at their best. */
record Rooms(String node, List<GpuRoom> list) {
    static Rooms without(NodeView view, String uid) {
        // Most often the pod has nothing there, and what was summed up already will do.
        boolean there =
                view.holdings().stream().anyMatch(holding -> holding.pod().uid().equals(uid));
        return there ? without(view, Set.of(uid)) : new Rooms(view.name(), view.rooms());
    }

    static Rooms without(NodeView view, Collection<String> uids) {
        List<Holding> rest = view.holdings().stream()
                .filter(holding -> !uids.contains(holding.pod().uid()))
                .toList();
        return new Rooms(
                view.name(),
                view.rooms().stream()
                        .map(room ->
                                new GpuRoom(room.card(), sum(rest, room.gpu().uuid())))
                        .toList());
    }

    /** Without any pod, and if every GPU took new shares. */
    static Rooms emptyAndOpen(NodeView view) {
        return new Rooms(
                view.name(),
                view.rooms().stream()
                        .map(room -> new GpuRoom(room.card().opened(), Amount.NOTHING))
                        .toList());
    }

    private static Amount sum(List<Holding> holdings, String gpu) {
        long memoryMiB = 0;
        int cores = 0;
        int slots = 0;
        boolean exclusive = false;
        for (Holding holding : holdings) {
            Amount amount = holding.perGpu().getOrDefault(gpu, Amount.NOTHING);
            memoryMiB += amount.memoryMiB();
            cores += amount.cores();
            slots += amount.slots();
            exclusive |= amount.exclusive();
        }
        return new Amount(memoryMiB, cores, slots, exclusive);
    }

    boolean hold(PodAsk ask) {
        // Whether it fits doesn't depend on what is liked best.
        return Chooser.look(ask, list, Placement.BINPACK) instanceof Fits;
    }
}
