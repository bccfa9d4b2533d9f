package io.aliquot.scheduler.recovery;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.apiserver.Cluster.PodState;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.PodId;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.OptionalLong;
import java.util.concurrent.atomic.AtomicInteger;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Finds out what became of a Binding or a resize whose answer was lost. The pod is read as it is now. Where it still has
 * the version that the write was conditional on, its version is moved on first, by an annotation that means nothing:
 * after that the write either shows or cannot happen any more, however late the server gets to it.
 */
public final class WriteReconciler {
    /** Whoever sent something looks into its outcome himself at first, and gives up before kube-scheduler does. */
    public static final Duration LEFT_ALONE = Duration.ofSeconds(10);

    /** Of those that can't be decided now, in one round: each may take seconds. */
    private static final int MOST_UNREADABLE = 3;

    private static final Logger LOG = LoggerFactory.getLogger(WriteReconciler.class);

    private final Ledger ledger;
    private final Cluster cluster;
    private final AtomicInteger rounds = new AtomicInteger();

    public WriteReconciler(Ledger ledger, Cluster cluster) {
        this.ledger = ledger;
        this.cluster = cluster;
    }

    /** Tells the ledger what became of the pod, and of what was sent for it. */
    public PodState reconcile(PodId pod) {
        OptionalLong base = ledger.unresolvedBase(pod.uid());
        PodState state = cluster.read(pod);
        if (base.isPresent() && state.version().equals(base)) {
            state = cluster.bumpVersion(pod, base.getAsLong());
        }
        tell(pod, state);
        return state;
    }

    public void tell(PodId pod, PodState state) {
        if (state instanceof PodState.Bound bound) {
            ledger.assume(bound.pod());
        } else if (state instanceof PodState.Gone) {
            ledger.discardAssumed(pod.uid());
        } else if (state.version().isPresent()) {
            ledger.observeUnbound(pod.uid(), state.version().getAsLong());
        }
    }

    /**
     * Decides what nobody has decided for a while. Each round begins with another pod: one that cannot be decided, since
     * somebody's policy refuses to have it moved on, say, is in nobody's way.
     */
    public void reconcileAll() {
        List<PodId> doubtful = new ArrayList<>(ledger.unconfirmed(LEFT_ALONE));
        Collections.rotate(doubtful, rounds.incrementAndGet());
        int unreadable = 0;
        for (PodId pod : doubtful) {
            PodState state = reconcile(pod);
            if (!(state instanceof PodState.Unreadable)) {
                LOG.warn("settled {} found={}", pod, state);
            } else if (++unreadable == MOST_UNREADABLE) {
                return;
            }
        }
    }
}
