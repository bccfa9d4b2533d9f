package io.aliquot.scheduler.ledger;

import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** Events of the ledger that have not been handled yet. Thread-safe. */
public final class LedgerEvents implements LedgerListener {
    /** A GPU of which pods seem to hold more than it has. */
    public record OverallocatedGpu(String node, String gpu) {}

    private final Set<String> freed = ConcurrentHashMap.newKeySet();
    private final Set<OverallocatedGpu> overallocated = ConcurrentHashMap.newKeySet();

    @Override
    public void capacityFreed(String node) {
        freed.add(node);
    }

    @Override
    public void overallocated(String node, String gpu) {
        overallocated.add(new OverallocatedGpu(node, gpu));
    }

    /** Takes the nodes on which capacity was freed. */
    public Set<String> takeFreed() {
        return take(freed);
    }

    /** Takes the GPUs that seem to be over-allocated. */
    public Set<OverallocatedGpu> takeOverallocated() {
        return take(overallocated);
    }

    /**
     * Drops the events of other nodes. A replica that does not lead takes no events, so names of deleted nodes would
     * accumulate.
     */
    public void keepOnly(Set<String> nodes) {
        freed.retainAll(nodes);
        overallocated.removeIf(gpu -> !nodes.contains(gpu.node()));
    }

    /** Removes what a concurrent set has, and returns it. */
    static <T> Set<T> take(Set<T> news) {
        var taken = new HashSet<T>(news);
        news.removeAll(taken);
        return taken;
    }
}
