package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.ledger.LedgerListener;
import io.aliquot.scheduler.ledger.PodId;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Nodes where the ledger has freed room that nobody has looked at yet. Thread-safe. */
final class FreedRoom implements LedgerListener {
    private static final Logger LOG = LoggerFactory.getLogger(FreedRoom.class);

    private final Set<String> nodes = ConcurrentHashMap.newKeySet();
    private final AtomicLong oversold = new AtomicLong();

    @Override
    public void roomFreed(String node) {
        nodes.add(node);
    }

    @Override
    public void oversold(String node, String gpu, PodId latest, Set<PodId> holders) {
        oversold.incrementAndGet();
        LOG.error("oversold node={} gpu={} noticed with {}, held by {}", node, gpu, latest, holders);
    }

    /** How often a GPU was seen to be oversold. */
    long oversold() {
        return oversold.get();
    }

    /** All of them, and none any more. */
    Set<String> take() {
        var taken = new HashSet<String>(nodes);
        nodes.removeAll(taken);
        return taken;
    }
}
