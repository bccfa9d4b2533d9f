package io.aliquot.scheduler.explain;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.apiserver.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.pending.PendingPods.Waiting;
import io.aliquot.scheduler.pending.PendingPods.Wish;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.LongSupplier;

/**
 * How many pods wait for what. Pods of one kind wait for the same, so only kinds are looked into; a few at a time, since
 * each look asks every node, and whichever has not been looked at for longest first.
 */
public final class PendingCauseCounts {
    static final int LOOKS = 10;
    static final String NOT_LOOKED_AT = "not-looked-at";
    /** What was seen is told for so long. */
    static final Duration KNOWN_FOR = Duration.ofMinutes(5);
    /** And not looked at anew within this, however often somebody asks. */
    private static final Duration FRESH = Duration.ofSeconds(10);

    private record Look(PendingCause cause, long at) {}

    private final PendingPods pending;
    private final Explainer explainer;
    private final Ledger ledger;
    private final Cluster cluster;
    private final LongSupplier nanoTime;
    /** The last one at each kind that waits. */
    private final IdentityHashMap<Wish, Look> looks = new IdentityHashMap<>();

    PendingCauseCounts(
            PendingPods pending, Explainer explainer, Ledger ledger, Cluster cluster, LongSupplier nanoTime) {
        this.pending = pending;
        this.explainer = explainer;
        this.ledger = ledger;
        this.cluster = cluster;
        this.nanoTime = nanoTime;
    }

    /** Pods that wait, by cause; every cause is there. The leader counts them, and nobody else. */
    public synchronized Map<String, Integer> count() {
        var kinds = new IdentityHashMap<Wish, List<Waiting>>();
        if (cluster.leadership() instanceof Leads) {
            pending.allWaiting()
                    .forEach(pod -> kinds.computeIfAbsent(pod.wish(), wish -> new ArrayList<>())
                            .add(pod));
        }
        looks.keySet().retainAll(kinds.keySet());
        long now = nanoTime.getAsLong();
        kinds.values().stream()
                .map(pods -> pods.get(0))
                .filter(pod -> age(pod.wish(), now) >= FRESH.toNanos())
                .sorted(Comparator.comparingLong(pod -> -age(pod.wish(), now)))
                .limit(LOOKS)
                .forEach(pod -> looks.put(pod.wish(), new Look(cause(pod), now)));
        var counts = new TreeMap<String, Integer>();
        for (PendingCause cause : PendingCause.values()) {
            counts.put(print(cause), 0);
        }
        counts.put(NOT_LOOKED_AT, 0);
        kinds.forEach((wish, pods) -> {
            Look look = looks.get(wish);
            String cause = look == null || now - look.at() >= KNOWN_FOR.toNanos() ? NOT_LOOKED_AT : print(look.cause());
            counts.merge(cause, pods.size(), Integer::sum);
        });
        return counts;
    }

    private long age(Wish wish, long now) {
        Look look = looks.get(wish);
        return look == null ? Long.MAX_VALUE : now - look.at();
    }

    private PendingCause cause(Waiting pod) {
        return explainer.cause(pod.pod(), pod.wish().ask(), pod.wish().nodesOr(ledger::nodeNames));
    }

    private static String print(PendingCause cause) {
        return cause.name().toLowerCase(Locale.ROOT).replace('_', '-');
    }
}
