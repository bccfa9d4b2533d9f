package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.ledger.LedgerListener;
import io.aliquot.scheduler.ledger.PodId;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ConcurrentHashMap;

/** What the ledger has told that nobody has looked into yet. Thread-safe. */
final class LedgerNews implements LedgerListener {
    /** A GPU of which more seems to be held than there is. */
    record Oversold(String node, String gpu, PodId latest, Set<PodId> holders) {}

    private final Set<String> freed = ConcurrentHashMap.newKeySet();
    private final ArrayBlockingQueue<Oversold> oversold = new ArrayBlockingQueue<>(100);

    @Override
    public void roomFreed(String node) {
        freed.add(node);
    }

    @Override
    public void oversold(String node, String gpu, PodId latest, Set<PodId> holders) {
        // Of more than a hundred at once the rest would say the same.
        var unused = oversold.offer(new Oversold(node, gpu, latest, holders));
    }

    /** Nodes where room was freed; each is told once. */
    Set<String> takeFreed() {
        var taken = new HashSet<String>(freed);
        freed.removeAll(taken);
        return taken;
    }

    /** Each is told once. */
    List<Oversold> takeOversold() {
        var taken = new ArrayList<Oversold>();
        oversold.drainTo(taken);
        return taken;
    }
}
