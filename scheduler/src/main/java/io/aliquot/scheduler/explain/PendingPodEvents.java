package io.aliquot.scheduler.explain;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.apiserver.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.pending.PendingPods.Waiting;
import io.aliquot.scheduler.pending.PendingPods.Wish;
import java.time.Duration;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;

/*
 * Thousands of pods may wait, for reasons that change with every share that comes or goes. So a pod is told of at most
 * once a minute, all of them together twice a second, whoever has not been looked at first, then whoever has not been
 * for longest; pods of one kind wait for the same, and a kind is looked into once in ten seconds; and looking at all nodes
 * for one kind after the other ends after some milliseconds, to go on a second later.
 */
/** Tells in an event on a pod why it waits, when that is new or was told long ago. Only the leader does. */
final class PendingPodEvents {
    static final String REASON = "WaitingForGPU";
    /** A pod that gets its node by then is not told of. */
    static final Duration PATIENCE = Duration.ofSeconds(3);
    /** Between two events about a pod. */
    static final Duration REST = Duration.ofMinutes(1);
    /** After which the same is told again: the API server drops events after an hour ({@code --event-ttl}). */
    static final Duration AGAIN = Duration.ofMinutes(30);

    static final int EVENTS_A_TURN = 2;
    private static final String ALL_NODES = " (of all nodes, whether or not kube-scheduler would take them)";
    private static final Duration KNOWN_FOR = Duration.ofSeconds(10);
    private static final Duration TURN = Duration.ofMillis(20);

    /**
     * What is known of a pod that waits.
     *
     * @param since when it was first seen waiting
     * @param looked whether anybody has looked yet why
     * @param told the last event's text; empty for none yet
     * @param toldAt when that was
     */
    private record Reported(long since, boolean looked, String told, long toldAt) {}

    private final PendingPods pending;
    private final Explainer explainer;
    private final Ledger ledger;
    private final Cluster cluster;
    private final LongSupplier nanoTime;
    /** By uid; whoever has not been looked at for longest comes first. */
    private final Map<String, PendingPodEvents.Reported> tales = new LinkedHashMap<>();

    private final Cache<Wish, Optional<String>> known;

    PendingPodEvents(PendingPods pending, Explainer explainer, Ledger ledger, Cluster cluster, LongSupplier nanoTime) {
        this.pending = pending;
        this.explainer = explainer;
        this.ledger = ledger;
        this.cluster = cluster;
        this.nanoTime = nanoTime;
        this.known = Caffeine.newBuilder()
                .weakKeys()
                .expireAfterWrite(KNOWN_FOR)
                .ticker(nanoTime::getAsLong)
                .build();
    }

    /** To be called about once a second. */
    void tell() {
        if (!(cluster.leadership() instanceof Leads)) {
            tales.clear();
            return;
        }
        long now = nanoTime.getAsLong();
        Map<String, Waiting> waiting = pending.allWaiting().stream()
                .collect(Collectors.toMap(pod -> pod.pod().uid(), pod -> pod, (one, other) -> one));
        tales.keySet().retainAll(waiting.keySet());
        waiting.keySet().forEach(uid -> tales.putIfAbsent(uid, new PendingPodEvents.Reported(now, false, "", now)));
        long began = nanoTime.getAsLong();
        int events = 0;
        List<Map.Entry<String, PendingPodEvents.Reported>> inTurn = tales.entrySet().stream()
                .sorted(Comparator.comparing(entry -> entry.getValue().looked()))
                .toList();
        for (var entry : inTurn) {
            Waiting pod = waiting.get(entry.getKey());
            if (pod == null || !due(entry.getValue(), now)) {
                continue;
            }
            if (events == EVENTS_A_TURN || nanoTime.getAsLong() - began > TURN.toNanos()) {
                return;
            }
            events += tell(pod, entry.getValue(), now) ? 1 : 0;
        }
    }

    private static boolean due(PendingPodEvents.Reported tale, long now) {
        return now - tale.since() >= PATIENCE.toNanos()
                && (tale.told().isEmpty() || now - tale.toldAt() >= REST.toNanos());
    }

    private boolean tell(Waiting pod, PendingPodEvents.Reported tale, long now) {
        Optional<String> why = known.get(pod.wish(), wish -> why(pod));
        boolean old = now - tale.toldAt() >= AGAIN.toNanos();
        boolean news = why.filter(text -> old || !text.equals(tale.told())).isPresent();
        if (news) {
            cluster.note(pod.pod(), REASON, why.orElseThrow());
        }
        tales.remove(pod.pod().uid());
        tales.put(
                pod.pod().uid(),
                news
                        ? new PendingPodEvents.Reported(tale.since(), true, why.orElseThrow(), now)
                        : new PendingPodEvents.Reported(tale.since(), true, tale.told(), tale.toldAt()));
        return news;
    }

    private Optional<String> why(Waiting pod) {
        Optional<String> why =
                explainer.oneLiner(pod.pod(), pod.wish().ask(), pod.wish().nodesOr(ledger::nodeNames));
        return pod.wish().nodes().names().isEmpty() ? why.map(text -> text + ALL_NODES) : why;
    }
}
