package io.aliquot.scheduler.extender;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.scheduler.explain.Cause;
import io.aliquot.scheduler.explain.Explainer;
import io.aliquot.scheduler.extender.Cluster.Standing.Leads;
import io.aliquot.scheduler.extender.PendingPods.Waiting;
import io.aliquot.scheduler.extender.PendingPods.Wish;
import io.aliquot.scheduler.ledger.Ledger;
import java.time.Duration;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/**
 * How many pods wait for what. Pods of one kind wait for the same, so only kinds are looked into; a few at a time, since
 * each look asks every node.
 */
final class WaitingCauses {
    private static final int LOOKS = 10;
    private static final String NOT_LOOKED_AT = "not-looked-at";

    private final PendingPods pending;
    private final Explainer explainer;
    private final Ledger ledger;
    private final Cluster cluster;
    private final Cache<Wish, Cause> known = Caffeine.newBuilder()
            .weakKeys()
            .expireAfterWrite(Duration.ofSeconds(30))
            .build();

    WaitingCauses(PendingPods pending, Explainer explainer, Ledger ledger, Cluster cluster) {
        this.pending = pending;
        this.explainer = explainer;
        this.ledger = ledger;
        this.cluster = cluster;
    }

    /** Pods that wait, by cause; every cause is there. The leader counts them, and nobody else. */
    Map<String, Integer> count() {
        var kinds = new IdentityHashMap<Wish, List<Waiting>>();
        if (cluster.standing() instanceof Leads) {
            pending.allWaiting()
                    .forEach(pod -> kinds.computeIfAbsent(pod.wish(), wish -> new ArrayList<>())
                            .add(pod));
        }
        var counts = new TreeMap<String, Integer>();
        for (Cause cause : Cause.values()) {
            counts.put(print(cause), 0);
        }
        counts.put(NOT_LOOKED_AT, 0);
        int looks = 0;
        for (List<Waiting> pods : kinds.values()) {
            Waiting example = pods.get(0);
            Cause cause = known.getIfPresent(example.wish());
            if (cause == null && looks < LOOKS) {
                looks++;
                cause = cause(example);
                known.put(example.wish(), cause);
            }
            counts.merge(cause == null ? NOT_LOOKED_AT : print(cause), pods.size(), Integer::sum);
        }
        return counts;
    }

    private Cause cause(Waiting pod) {
        return explainer.cause(pod.pod(), pod.wish().ask(), pod.wish().nodesOr(ledger::nodeNames));
    }

    private static String print(Cause cause) {
        return cause.name().toLowerCase(Locale.ROOT).replace('_', '-');
    }
}
