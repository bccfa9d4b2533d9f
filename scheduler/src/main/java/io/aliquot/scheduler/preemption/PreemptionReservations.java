package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.ledger.BoundPod;
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
import org.springframework.stereotype.Component;

/**
 * Capacity reserved for a nominated pod, that is, a preemptor whose victims terminate; released when the preemptor is
 * bound, disappears or goes elsewhere. Reservations are not persisted: the evictor of the next leader finds the victims
 * terminating and reserves their capacity again. Thread-safe.
 */
@Component
final class PreemptionReservations implements ReservationHolders {
    /** How long the watch may take to report that a victim terminates. */
    private static final Duration LAG = Duration.ofSeconds(15);

    /**
     * How long a preemptor waits for a pod that terminates; a pod's grace period may be years. As long as Cluster
     * Autoscaler waits (--max-graceful-termination-sec). All pods of a namespace together, since a tenant may have many.
     */
    static final Duration LONGEST_WAIT = Duration.ofMinutes(10);

    /** The same for a namespace whose pods have been waited for that long; Kubernetes' default grace period. */
    static final Duration SHORT_WAIT = Duration.ofSeconds(30);

    /** How long after the beginning of a wait that was longer than {@link #SHORT_WAIT} the next may begin. */
    static final Duration BETWEEN_LONG_WAITS = Duration.ofHours(1);

    /**
     * How long after the end of its grace period a pod is still expected to leave. One that was deleted by force holds its
     * share until its node has not had it for 30 s, of which the ledger learns every 9 s.
     */
    private static final Duration OVERDUE = Duration.ofSeconds(60);

    /**
     * Reserved capacity on a node.
     *
     * @param victims uids of the pods that are evicted for it
     * @param awaited the victims, and the pods that were terminating on the node when the reservation began
     * @param vacated whether none of the awaited pods holds a GPU of the node any more
     * @param since when the reservation began, or was vacated
     */
    record Reservation(
            PodId pod,
            PodGpuRequest request,
            String node,
            Set<String> victims,
            Set<String> awaited,
            boolean vacated,
            long since) {
        Reservation vacatedAt(long now) {
            return new Reservation(pod, request, node, Set.of(), Set.of(), true, now);
        }
    }

    private final Ledger ledger;
    private final PendingPods pending;
    private final Cluster cluster;
    private final LongSupplier nanoTime;
    private final InstantSource clock;
    private final Map<String, Reservation> byPod = new ConcurrentHashMap<>();
    /** When preemptors began to wait for pods with long grace periods, by their namespace. */
    private final Map<String, Instant> longWaits = new ConcurrentHashMap<>();

    PreemptionReservations(
            Ledger ledger, PendingPods pending, Cluster cluster, LongSupplier nanoTime, InstantSource clock) {
        this.ledger = ledger;
        this.pending = pending;
        this.cluster = cluster;
        this.nanoTime = nanoTime;
        this.clock = clock;
    }

    /** Reserves what the victims and the pods that terminate anyway will free; returns whether that suffices. */
    boolean reserve(PodId pod, PodGpuRequest request, String node, Set<String> victims) {
        Set<String> awaited = leaving(node, pod.uid());
        awaited.addAll(victims);
        boolean done = reserve(new Reservation(
                pod, request, node, Set.copyOf(victims), Set.copyOf(awaited), false, nanoTime.getAsLong()));
        if (done) {
            awaited.forEach(uid -> ledger.bound(uid).ifPresent(this::noteLongWait));
        }
        return done;
    }

    private void noteLongWait(BoundPod awaited) {
        Instant now = clock.instant();
        Instant end = awaited.leaves() ? awaited.leavesBy() : now.plus(awaited.grace());
        longWaits.values().removeIf(since -> since.plus(BETWEEN_LONG_WAITS).isBefore(now));
        if (end.isAfter(now.plus(SHORT_WAIT))) {
            longWaits.putIfAbsent(awaited.id().namespace(), now);
        }
    }

    /** How long preemptors wait for pods of a namespace that begin to terminate now. */
    Duration wait(String namespace) {
        Instant now = clock.instant();
        Instant since = longWaits.getOrDefault(namespace, now);
        Duration rest = Duration.between(now, since.plus(LONGEST_WAIT));
        return since.plus(BETWEEN_LONG_WAITS).isBefore(now)
                ? LONGEST_WAIT
                : rest.compareTo(SHORT_WAIT) > 0 ? rest : SHORT_WAIT;
    }

    private boolean reserve(Reservation reservation) {
        Set<String> without = leaving(reservation.node(), reservation.pod().uid());
        if (nanoTime.getAsLong() - reservation.since() < LAG.toNanos()) {
            without.addAll(reservation.victims());
        }
        boolean done = ledger.reserveFor(reservation.pod(), reservation.node(), reservation.request(), without);
        if (done) {
            boolean vacated = !reservation.vacated() && Collections.disjoint(without, reservation.awaited());
            byPod.put(reservation.pod().uid(), vacated ? reservation.vacatedAt(nanoTime.getAsLong()) : reservation);
        } else {
            release(reservation.pod().uid());
        }
        return done;
    }

    void release(String uid) {
        byPod.remove(uid);
        ledger.releaseReservation(uid);
    }

    /** Whether the pod has a reservation. */
    boolean holds(String uid) {
        return byPod.containsKey(uid);
    }

    @Override
    public Collection<PodId> pods() {
        return all().stream().map(Reservation::pod).toList();
    }

    /** The pods that are evicted for this one on this node, or were. */
    Set<String> victims(String uid, String node) {
        Reservation reservation = byPod.get(uid);
        return reservation == null || !reservation.node().equals(node) ? Set.of() : reservation.victims();
    }

    Collection<Reservation> all() {
        return List.copyOf(byPod.values());
    }

    /** Renews the reservations before the ledger drops them, and releases those that are no longer needed. */
    void refresh() {
        for (Reservation reservation : all()) {
            String uid = reservation.pod().uid();
            boolean stays = ledger.nodeOf(uid).map(reservation.node()::equals).orElse(true);
            // A pod that was deleted during filter is still in PendingPods, but the watch no longer has it.
            boolean waits = pending.request(uid).isPresent()
                    && cluster.version(reservation.pod()).isPresent();
            if (!waits || !stays || passedOver(reservation)) {
                release(uid);
            } else {
                reserve(reservation);
            }
        }
    }

    /**
     * Whether kube-scheduler asked about the pod without this node after the awaited pods were gone. Before that, the
     * node may have lacked CPU or memory.
     */
    private boolean passedOver(Reservation reservation) {
        return reservation.vacated()
                && pending.pending(reservation.pod().uid())
                        .filter(pod -> pod.lastFiltered() - reservation.since() > 0
                                && !pod.kind().nodes().contains(reservation.node()))
                        .isPresent();
    }

    private Set<String> leaving(String node, String preemptor) {
        return ledger.view(node).map(view -> leaving(view, preemptor)).orElseGet(HashSet::new);
    }

    /**
     * Uids of the pods that terminate, or are being evicted, and still hold GPUs of the node.
     *
     * @param preemptor uid of a pod; what it waits for already it waits for until {@link #LONGEST_WAIT} is over
     */
    Set<String> leaving(NodeView node, String preemptor) {
        Reservation own = byPod.get(preemptor);
        Set<String> leaving = node.holdings().stream()
                .filter(holding -> leaves(
                        holding,
                        own != null && own.awaited().contains(holding.pod().uid())
                                ? LONGEST_WAIT
                                : wait(holding.pod().namespace()).plus(LAG)))
                .map(holding -> holding.pod().uid())
                .collect(Collectors.toCollection(HashSet::new));
        long now = nanoTime.getAsLong();
        for (Reservation reservation : byPod.values()) {
            if (reservation.node().equals(node.name()) && now - reservation.since() < LAG.toNanos()) {
                leaving.addAll(reservation.victims());
            }
        }
        return leaving;
    }

    /** Whether the pod ends soon. A pod long past its grace period, perhaps on an unreachable node, does not count. */
    private boolean leaves(Holding holding, Duration within) {
        Instant now = clock.instant();
        return !holding.leavesBy().isAfter(now.plus(within))
                && holding.leavesBy().isAfter(now.minus(OVERDUE));
    }
}
