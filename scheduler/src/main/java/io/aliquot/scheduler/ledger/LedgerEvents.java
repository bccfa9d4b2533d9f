package io.aliquot.scheduler.ledger;

import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** What the ledger has told that nobody has looked into yet. Thread-safe. */
public final class LedgerEvents implements LedgerListener {
    /** A GPU of which more seems to be held than there is. */
    public record Oversold(String node, String gpu) {}

    private final Set<String> freed = ConcurrentHashMap.newKeySet();
    private final Set<Oversold> oversold = ConcurrentHashMap.newKeySet();

    @Override
    public void capacityFreed(String node) {
        freed.add(node);
    }

    @Override
    public void overallocated(String node, String gpu) {
        oversold.add(new Oversold(node, gpu));
    }

    /** Nodes where room was freed; each is told once. */
    public Set<String> takeFreed() {
        return take(freed);
    }

    /** Each is told once. */
    public Set<Oversold> takeOverallocated() {
        return take(oversold);
    }

    /** Forgets what it was told of other nodes: names would pile up where nodes come and go and nobody takes anything. */
    public void keepOnly(Set<String> nodes) {
        freed.retainAll(nodes);
        oversold.removeIf(gpu -> !nodes.contains(gpu.node()));
    }

    private static <T> Set<T> take(Set<T> news) {
        var taken = new HashSet<T>(news);
        news.removeAll(taken);
        return taken;
    }
}
