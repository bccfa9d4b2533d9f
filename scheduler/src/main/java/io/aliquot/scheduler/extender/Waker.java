package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.extender.PendingPods.Waiting;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.Offer;
import java.util.List;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Tells kube-scheduler when room was freed that a waiting pod fits into; of its own accord it would retry only when a
 * node changes. Called over and over, at most once a second, which also bounds the writes.
 */
final class Waker {
    private static final Logger LOG = LoggerFactory.getLogger(Waker.class);

    private final Ledger ledger;
    private final LedgerNews news;
    private final PendingPods pending;
    private final Cluster cluster;

    Waker(Ledger ledger, LedgerNews news, PendingPods pending, Cluster cluster) {
        this.ledger = ledger;
        this.news = news;
        this.pending = pending;
        this.cluster = cluster;
    }

    void wake() {
        ledger.expire();
        Set<String> nodes = news.takeFreed();
        if (nodes.isEmpty()) {
            return;
        }
        List<Waiting> waiting = pending.waiting();
        for (String node : nodes) {
            for (Waiting one : waiting) {
                if (ledger.ask(node, one.pod().uid(), one.ask()) instanceof Offer.Fits) {
                    LOG.info("wake node={} for {}", node, one.pod());
                    if (!cluster.wake(node)) {
                        nodes.forEach(news::roomFreed); // next time
                    }
                    return;
                }
            }
        }
    }
}
