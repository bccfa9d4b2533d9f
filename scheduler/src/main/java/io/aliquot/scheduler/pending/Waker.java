package io.aliquot.scheduler.pending;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.apiserver.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.ledger.Feasibility;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerEvents;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.pending.PendingPods.Waiting;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/*
 * kube-scheduler (1.35, backend/queue/scheduling_queue.go) tries a pod that an extender refused again at any event of
 * any node or bound pod, all such pods at once, each after its backoff. So most room needs no word of ours; that which
 * does is room that kube-scheduler heard of before our ledger did, or that it cannot see: a reservation that ended.
 * A word of ours, too, makes it try all of them, whomever it helps: hence only where it helps somebody.
 */
/**
 * Tells kube-scheduler when room was freed that a waiting pod fits into. Called over and over; writes at most once a
 * second. A look costs a question for each node where room was freed and each kind of waiting pod, however many pods
 * are of a kind.
 */
public final class Waker {
    public static final Duration PAUSE = Duration.ofSeconds(1);
    /** For a pod that kube-scheduler was told to try again, and hasn't asked about since. */
    static final Duration AGAIN = Duration.ofMinutes(1);

    private static final Logger LOG = LoggerFactory.getLogger(Waker.class);
    /** Questions at one look, tens of milliseconds; what is left is asked at the next. */
    private static final int MOST_QUESTIONS = 20_000;

    private final Ledger ledger;
    private final LedgerEvents news;
    private final PendingPods pending;
    private final ReservationHolders reservations;
    private final Cluster cluster;
    private final LongSupplier nanoTime;
    private volatile long written;
    /** When the last write was begun that worked. */
    private volatile long woken;

    public Waker(
            Ledger ledger,
            LedgerEvents news,
            PendingPods pending,
            ReservationHolders reservations,
            Cluster cluster,
            LongSupplier nanoTime) {
        this.ledger = ledger;
        this.news = news;
        this.pending = pending;
        this.reservations = reservations;
        this.cluster = cluster;
        this.nanoTime = nanoTime;
        this.written = nanoTime.getAsLong() - PAUSE.toNanos();
        this.woken = written;
    }

    /**
     * Makes kube-scheduler ask about this pod again, if it hasn't been {@link #told}, nor anything else for a second.
     *
     * @param node that the pod may fit on, or may be made to
     */
    public void wake(String node, Waiting pod) {
        if (!told(pod)) {
            var unused = write(node, pod.pod());
        }
    }

    /**
     * Whether kube-scheduler has been made to try all pods again within the last minute, and since it asked about this
     * one: it will ask after its backoff, or has no node to ask about.
     */
    public boolean told(Waiting pod) {
        long last = woken;
        return last - pod.lookedAt() > 0 && nanoTime.getAsLong() - last < AGAIN.toNanos();
    }

    private boolean due() {
        return nanoTime.getAsLong() - written >= PAUSE.toNanos();
    }

    /** Whether it was written; not within a second of another write. */
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
            return; // what is freed in the meantime is kept
        }
        Set<String> freed = news.takeFreed();
        if (freed.isEmpty()) {
            return;
        }
        List<Waiting> kinds = new ArrayList<>(pending.kinds());
        // No other pod fits into what is reserved for one.
        reservations.pods().forEach(pod -> pending.waiting(pod.uid()).ifPresent(kinds::add));
        List<String> nodes = new ArrayList<>(freed);
        int atOnce = Math.max(1, MOST_QUESTIONS / Math.max(1, kinds.size()));
        for (String node : nodes.subList(0, Math.min(atOnce, nodes.size()))) {
            Optional<Waiting> helped = kinds.stream()
                    .filter(waiting -> waiting.wish().nodes().contains(node)
                            && ledger.feasibility(
                                            node,
                                            waiting.pod().uid(),
                                            waiting.wish().ask())
                                    instanceof Feasibility.Fits)
                    .findFirst();
            if (helped.isPresent()) {
                if (!write(node, helped.get().pod())) {
                    nodes.forEach(news::capacityFreed); // next time
                }
                return; // it wakes all
            }
        }
        nodes.stream().skip(atOnce).forEach(news::capacityFreed);
    }
}
