package io.aliquot.scheduler.explain;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.pending.PendingPods.PendingPod;
import io.aliquot.scheduler.pending.PendingPods.PodKind;
import java.time.Duration;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import org.springframework.stereotype.Component;

/*
 * The rate limit. Thousands of pods may be pending, for reasons that change with every allocation. A pod gets
 * at most one event a minute, and all pods together two a second, beginning with pods that were never evaluated and
 * then with those evaluated longest ago. Pods of one kind have the same reason, which is cached for ten seconds. A run
 * ends after 20 ms and the next one, a second later, goes on.
 */
/**
 * Writes an event on a Pending pod that says why it is Pending, if the reason is new or the last event is old, within a
 * rate limit; leader only.
 */
@Component
public final class PendingPodEvents {
    static final String REASON = "WaitingForGPU";
    /** A pod that is bound within this time gets no event. */
    static final Duration GRACE = Duration.ofSeconds(3);
    /** Between two events about a pod. */
    static final Duration MIN_INTERVAL = Duration.ofMinutes(1);
    /** When the same event is written again: the API server drops events after an hour ({@code --event-ttl}). */
    static final Duration REPEAT_AFTER = Duration.ofMinutes(30);

    static final int MAX_EVENTS_PER_RUN = 2;
    private static final String ALL_NODES = " (of all nodes, whether or not kube-scheduler would take them)";
    private static final Duration CACHED_FOR = Duration.ofSeconds(10);
    private static final Duration MAX_RUN = Duration.ofMillis(20);

    /**
     * What was written about a pending pod.
     *
     * @param since when the pod was first seen pending
     * @param evaluated whether the reason was evaluated
     * @param text the text of the last event; empty for none
     * @param writtenAt the time of the last event
     */
    private record Reported(long since, boolean evaluated, String text, long writtenAt) {}

    private final PendingPods pending;
    private final Explainer explainer;
    private final Ledger ledger;
    private final Cluster cluster;
    private final LongSupplier nanoTime;
    /** By uid; the pod evaluated longest ago comes first. */
    private final Map<String, Reported> reported = new LinkedHashMap<>();

    private final Cache<PodKind, Optional<String>> known;

    PendingPodEvents(PendingPods pending, Explainer explainer, Ledger ledger, Cluster cluster, LongSupplier nanoTime) {
        this.pending = pending;
        this.explainer = explainer;
        this.ledger = ledger;
        this.cluster = cluster;
        this.nanoTime = nanoTime;
        this.known = Caffeine.newBuilder()
                .weakKeys()
                .expireAfterWrite(CACHED_FOR)
                .ticker(nanoTime::getAsLong)
                .build();
    }

    /** One run, about once a second. */
    public void report() {
        if (!(cluster.leadership() instanceof Leads)) {
            reported.clear();
            return;
        }
        long now = nanoTime.getAsLong();
        Map<String, PendingPod> waiting = pending.allPending().stream()
                .collect(Collectors.toMap(pod -> pod.pod().uid(), pod -> pod, (one, other) -> one));
        reported.keySet().retainAll(waiting.keySet());
        waiting.keySet().forEach(uid -> reported.putIfAbsent(uid, new Reported(now, false, "", now)));
        long began = nanoTime.getAsLong();
        int events = 0;
        List<Map.Entry<String, Reported>> inTurn = reported.entrySet().stream()
                .sorted(Comparator.comparing(entry -> entry.getValue().evaluated()))
                .toList();
        for (var entry : inTurn) {
            PendingPod pod = waiting.get(entry.getKey());
            if (pod == null || !due(entry.getValue(), now)) {
                continue;
            }
            if (events == MAX_EVENTS_PER_RUN || nanoTime.getAsLong() - began > MAX_RUN.toNanos()) {
                return;
            }
            events += report(pod, entry.getValue(), now) ? 1 : 0;
        }
    }

    private static boolean due(Reported report, long now) {
        return now - report.since() >= GRACE.toNanos()
                && (report.text().isEmpty() || now - report.writtenAt() >= MIN_INTERVAL.toNanos());
    }

    private boolean report(PendingPod pod, Reported report, long now) {
        // Pods of one kind that kube-scheduler refused itself may be of several namespaces.
        Optional<String> why =
                ledger.overQuota(pod.pod(), pod.kind().request()).or(() -> known.get(pod.kind(), kind -> why(pod)));
        boolean old = now - report.writtenAt() >= REPEAT_AFTER.toNanos();
        boolean isNew = why.filter(text -> old || !text.equals(report.text())).isPresent();
        if (isNew) {
            cluster.note(pod.pod(), REASON, why.orElseThrow());
        }
        reported.remove(pod.pod().uid());
        reported.put(
                pod.pod().uid(),
                isNew
                        ? new Reported(report.since(), true, why.orElseThrow(), now)
                        : new Reported(report.since(), true, report.text(), report.writtenAt()));
        return isNew;
    }

    private Optional<String> why(PendingPod pod) {
        Optional<String> why =
                explainer.eventText(pod.pod(), pod.kind().request(), pod.kind().nodesOr(ledger::nodeNames));
        return pod.kind().nodes().names().isEmpty() ? why.map(text -> text + ALL_NODES) : why;
    }
}
