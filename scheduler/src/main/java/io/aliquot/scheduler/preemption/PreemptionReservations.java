package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.pending.ReservationHolders;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;

/**
 * Room that pods were made to leave, for whom they were made to: kept until that pod is bound or gone, or goes
 * elsewhere, or cannot come any more. Not remembered beyond this process: the evictor of who takes over finds the victims
 * leaving and keeps their room again. Thread-safe.
 */
final class PreemptionReservations implements ReservationHolders {
    /** Until the watch must have told that a victim was told to leave. */
    private static final Duration LAG = Duration.ofSeconds(15);

    /** How long after it should be gone a pod is still expected to go. */
    private static final Duration OVERDUE = Duration.ofSeconds(30);

    /**
     * Room on a node.
     *
     * @param victims who are being told to leave
     * @param awaited these, and who was leaving the node already when it was begun
     * @param vacated whether none of those is there any more
     * @param since when it was begun, or vacated
     */
    record Kept(
            PodId pod,
            PodGpuRequest ask,
            String node,
            Set<String> victims,
            Set<String> awaited,
            boolean vacated,
            long since) {
        Kept vacatedAt(long now) {
            return new Kept(pod, ask, node, Set.of(), Set.of(), true, now);
        }
    }

    private final Ledger ledger;
    private final PendingPods pending;
    private final Cluster cluster;
    private final LongSupplier nanoTime;
    private final InstantSource clock;
    private final Map<String, Kept> byPod = new ConcurrentHashMap<>();

    PreemptionReservations(
            Ledger ledger, PendingPods pending, Cluster cluster, LongSupplier nanoTime, InstantSource clock) {
        this.ledger = ledger;
        this.pending = pending;
        this.cluster = cluster;
        this.nanoTime = nanoTime;
        this.clock = clock;
    }

    /** Keeps the room that these, and whoever leaves the node anyway, will have left; whether that is enough. */
    boolean reserve(PodId pod, PodGpuRequest ask, String node, Set<String> victims) {
        Set<String> awaited = leaving(node);
        awaited.addAll(victims);
        return reserve(new Kept(pod, ask, node, Set.copyOf(victims), Set.copyOf(awaited), false, nanoTime.getAsLong()));
    }

    private boolean reserve(Kept kept) {
        Set<String> without = leaving(kept.node());
        if (nanoTime.getAsLong() - kept.since() < LAG.toNanos()) {
            without.addAll(kept.victims());
        }
        boolean done = ledger.reserveFor(kept.pod(), kept.node(), kept.ask(), without);
        if (done) {
            boolean vacated = !kept.vacated() && Collections.disjoint(without, kept.awaited());
            byPod.put(kept.pod().uid(), vacated ? kept.vacatedAt(nanoTime.getAsLong()) : kept);
        } else {
            release(kept.pod().uid());
        }
        return done;
    }

    void release(String uid) {
        byPod.remove(uid);
        ledger.releaseReservation(uid);
    }

    /** Whether room is kept for this pod. */
    boolean holds(String uid) {
        return byPod.containsKey(uid);
    }

    @Override
    public Collection<PodId> pods() {
        return all().stream().map(Kept::pod).toList();
    }

    Collection<Kept> all() {
        return List.copyOf(byPod.values());
    }

    /** To be called often enough that the ledger doesn't forget. */
    void refresh() {
        for (Kept kept : all()) {
            String uid = kept.pod().uid();
            boolean stays = ledger.nodeOf(uid).map(kept.node()::equals).orElse(true);
            // A pod that was deleted while it was looked at is still pending, but not for the watch.
            boolean waits = pending.request(uid).isPresent()
                    && cluster.version(kept.pod()).isPresent();
            if (!waits || !stays || passedOver(kept)) {
                release(uid);
            } else {
                reserve(kept);
            }
        }
    }

    /**
     * Whether kube-scheduler has asked about the pod and not about this node: since those who are awaited are gone,
     * because until then the node's totals may have been short.
     */
    private boolean passedOver(Kept kept) {
        return kept.vacated()
                && pending.waiting(kept.pod().uid())
                        .filter(pod -> pod.lookedAt() - kept.since() > 0
                                && !pod.wish().nodes().contains(kept.node()))
                        .isPresent();
    }

    /** Uids of pods that were told to leave a node, or are being told, and still have parts of its GPUs. */
    Set<String> leaving(String node) {
        return ledger.view(node).map(this::leaving).orElseGet(HashSet::new);
    }

    Set<String> leaving(NodeView node) {
        Set<String> leaving = node.holdings().stream()
                .filter(this::leaves)
                .map(holding -> holding.pod().uid())
                .collect(Collectors.toCollection(HashSet::new));
        long now = nanoTime.getAsLong();
        for (Kept kept : byPod.values()) {
            if (kept.node().equals(node.name()) && now - kept.since() < LAG.toNanos()) {
                leaving.addAll(kept.victims());
            }
        }
        return leaving;
    }

    /** One that should be gone and isn't, on a node that doesn't answer perhaps, is not waited for. */
    private boolean leaves(Holding holding) {
        return holding.leavesBy().isBefore(Instant.MAX)
                && holding.leavesBy().isAfter(clock.instant().minus(OVERDUE));
    }
}
