package io.aliquot.scheduler.pending;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerEvents;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.pending.PendingPods.PendingPod;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.stereotype.Component;

/*
 * Why a write to a node wakes kube-scheduler: kube-scheduler (1.35, backend/queue/scheduling_queue.go,
 * moveAllToActiveOrBackoffQueue) requeues all pods that an extender refused, each after its backoff, at any event of any
 * node or bound pod. Most freed capacity comes with such an event. Two cases do not: kube-scheduler saw the event before
 * the ledger did, and the end of a reservation, which kube-scheduler cannot see. A write of the Waker requeues all pods
 * too, so it is sent only if a pending pod fits.
 */
/**
 * Makes kube-scheduler requeue Pending pods, that is, retry them, when capacity is freed that one of them fits into.
 * Writes at most once a second. A run costs one feasibility check for each pair of a node with freed capacity and a kind
 * of Pending pod.
 */
@Component
public final class Waker {
    public static final Duration MIN_INTERVAL = Duration.ofSeconds(1);
    /** When a pod is retried that kube-scheduler has not asked about since it was woken. */
    static final Duration RETRY_AFTER = Duration.ofMinutes(1);

    private static final Logger LOG = LoggerFactory.getLogger(Waker.class);
    /** Checks in one run, tens of milliseconds; the next run does the rest. */
    private static final int MAX_CHECKS = 20_000;

    private final Ledger ledger;
    private final LedgerEvents events;
    private final PendingPods pending;
    private final ReservationHolders reservations;
    private final Cluster cluster;
    private final LongSupplier nanoTime;
    private volatile long written;
    /** The start of the last write that succeeded. */
    private volatile long woken;

    public Waker(
            Ledger ledger,
            LedgerEvents events,
            PendingPods pending,
            ReservationHolders reservations,
            Cluster cluster,
            LongSupplier nanoTime) {
        this.ledger = ledger;
        this.events = events;
        this.pending = pending;
        this.reservations = reservations;
        this.cluster = cluster;
        this.nanoTime = nanoTime;
        this.written = nanoTime.getAsLong() - MIN_INTERVAL.toNanos();
        this.woken = written;
    }

    /**
     * Makes kube-scheduler retry this pod, unless it was {@linkplain #wokenSince woken} already or a write went out
     * within the last second.
     *
     * @param node on which the pod fits, or would fit after evictions
     */
    public void wake(String node, PendingPod pod) {
        if (!wokenSince(pod)) {
            var unused = write(node, pod.pod());
        }
    }

    /**
     * Whether kube-scheduler was woken within the last minute and after it asked about this pod. It then asks again
     * after its backoff, or its own filters leave no node.
     */
    public boolean wokenSince(PendingPod pod) {
        long last = woken;
        return last - pod.lastFiltered() > 0 && nanoTime.getAsLong() - last < RETRY_AFTER.toNanos();
    }

    private boolean due() {
        return nanoTime.getAsLong() - written >= MIN_INTERVAL.toNanos();
    }

    /** Writes, unless another write went out within the last second; returns whether the write succeeded. */
    private boolean write(String node, PodId pod) {
        long now = nanoTime.getAsLong();
        synchronized (this) {
            if (!due()) {
                return false;
            }
            written = now;
        }
        LOG.info("wake node={} for {}", node, pod);
        boolean works = cluster.wake(node);
        if (works) {
            woken = now;
        }
        return works;
    }

    public void wake() {
        if (!due() || !(cluster.leadership() instanceof Leads)) {
            return; // the events stay in the queue
        }
        Set<String> freed = events.takeFreed();
        Set<String> namespaces = ledger.takeNamespacesWithRoom();
        if (freed.isEmpty() && namespaces.isEmpty()) {
            return;
        }
        List<PendingPod> kinds = new ArrayList<>(pending.kinds());
        if (wakeWithin(namespaces, kinds)) {
            return; // one write wakes all pods
        }
        // No other pod fits into what is reserved for one.
        reservations.pods().forEach(pod -> pending.pending(pod.uid()).ifPresent(kinds::add));
        kinds.removeIf(waiting -> !waiting.kind().overQuotaIn().isEmpty() && isOverQuota(waiting));
        List<String> nodes = new ArrayList<>(freed);
        int atOnce = Math.max(1, MAX_CHECKS / Math.max(1, kinds.size()));
        for (String node : nodes.subList(0, Math.min(atOnce, nodes.size()))) {
            Optional<PendingPod> helped = kinds.stream()
                    .filter(waiting -> waiting.kind().nodes().contains(node)
                            && ledger.feasibility(
                                            node,
                                            waiting.pod().uid(),
                                            waiting.kind().request())
                                    instanceof Feasibility.Fits)
                    .findFirst();
            if (helped.isPresent()) {
                if (!write(node, helped.get().pod())) {
                    nodes.forEach(events::capacityFreed); // next time
                }
                return; // one write wakes all pods
            }
        }
        nodes.stream().skip(atOnce).forEach(events::capacityFreed);
    }

    /**
     * Wakes a pod that a quota of these namespaces refused and that fits now; kube-scheduler sees no event when a quota
     * changes.
     */
    private boolean wakeWithin(Set<String> namespaces, List<PendingPod> kinds) {
        int checks = 0;
        for (PendingPod waiting : kinds) {
            if (!namespaces.contains(waiting.kind().overQuotaIn()) || isOverQuota(waiting)) {
                continue;
            }
            for (String node : waiting.kind().nodesOr(ledger::nodeNames)) {
                // After many checks without checking: a retry costs less.
                if (checks++ >= MAX_CHECKS || fitsWithinQuota(node, waiting)) {
                    boolean works = write(node, waiting.pod());
                    if (!works) {
                        namespaces.forEach(ledger::hasRoom); // next time
                    }
                    return works;
                }
            }
        }
        return false;
    }

    private boolean isOverQuota(PendingPod waiting) {
        return ledger.overQuota(waiting.pod(), waiting.kind().request()).isPresent();
    }

    private boolean fitsWithinQuota(String node, PendingPod waiting) {
        PodGpuRequest request = waiting.kind().request();
        return ledger.feasibility(node, waiting.pod().uid(), request) instanceof Feasibility.Fits
                && ledger.overQuotaOn(node, waiting.pod(), request, Set.of()).isEmpty();
    }
}
