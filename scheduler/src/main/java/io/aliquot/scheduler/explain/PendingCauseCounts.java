package io.aliquot.scheduler.explain;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.pending.PendingPods.PendingPod;
import io.aliquot.scheduler.pending.PendingPods.PodKind;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.LongSupplier;
import org.springframework.stereotype.Component;

/**
 * Counts pending pods by cause. Pods of one kind have the same cause, so it evaluates kinds: a few per call, since each
 * evaluation visits every node, beginning with those evaluated longest ago.
 */
@Component
public final class PendingCauseCounts {
    static final int MAX_EVALUATIONS = 10;
    static final String NOT_EVALUATED = "not-evaluated";
    /** How long a result counts. */
    static final Duration CACHED_FOR = Duration.ofMinutes(5);
    /** A kind is not evaluated again within this time, however often Prometheus scrapes. */
    private static final Duration REUSED_FOR = Duration.ofSeconds(10);

    private record Evaluation(PendingCause cause, long at) {}

    private final PendingPods pending;
    private final Explainer explainer;
    private final Ledger ledger;
    private final Cluster cluster;
    private final LongSupplier nanoTime;
    /** The last evaluation of each pending kind. */
    private final IdentityHashMap<PodKind, Evaluation> evaluations = new IdentityHashMap<>();

    PendingCauseCounts(
            PendingPods pending, Explainer explainer, Ledger ledger, Cluster cluster, LongSupplier nanoTime) {
        this.pending = pending;
        this.explainer = explainer;
        this.ledger = ledger;
        this.cluster = cluster;
        this.nanoTime = nanoTime;
    }

    /** Pending pods by cause, with every cause as a key; all 0 on a replica that does not lead. */
    public synchronized Map<String, Integer> count() {
        var kinds = new IdentityHashMap<PodKind, List<PendingPod>>();
        if (cluster.leadership() instanceof Leads) {
            pending.allPending()
                    .forEach(pod -> kinds.computeIfAbsent(pod.kind(), kind -> new ArrayList<>())
                            .add(pod));
        }
        evaluations.keySet().retainAll(kinds.keySet());
        long now = nanoTime.getAsLong();
        kinds.values().stream()
                .map(pods -> pods.get(0))
                .filter(pod -> age(pod.kind(), now) >= REUSED_FOR.toNanos())
                .sorted(Comparator.comparingLong(pod -> -age(pod.kind(), now)))
                .limit(MAX_EVALUATIONS)
                .forEach(pod -> evaluations.put(pod.kind(), new Evaluation(cause(pod), now)));
        var counts = new TreeMap<String, Integer>();
        for (PendingCause cause : PendingCause.values()) {
            counts.put(print(cause), 0);
        }
        counts.put(NOT_EVALUATED, 0);
        kinds.forEach((kind, pods) -> {
            Evaluation evaluation = evaluations.get(kind);
            String cause = evaluation == null || now - evaluation.at() >= CACHED_FOR.toNanos()
                    ? NOT_EVALUATED
                    : print(evaluation.cause());
            counts.merge(cause, pods.size(), Integer::sum);
        });
        return counts;
    }

    private long age(PodKind kind, long now) {
        Evaluation evaluation = evaluations.get(kind);
        return evaluation == null ? Long.MAX_VALUE : now - evaluation.at();
    }

    private PendingCause cause(PendingPod pod) {
        return explainer.cause(pod.pod(), pod.kind().request(), pod.kind().nodesOr(ledger::nodeNames));
    }

    private static String print(PendingCause cause) {
        return cause.name().toLowerCase(Locale.ROOT).replace('_', '-');
    }
}
