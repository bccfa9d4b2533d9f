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
 * Finds the outcome of a Binding or a resize whose answer was lost. It reads the pod. If the pod still has the
 * resourceVersion that the write was conditional on, it first advances the version with an annotation that has no other
 * effect: after that the write is either visible or can no longer happen, however late the server processes it.
 */
public final class WriteReconciler {
    /** The sender of a write reconciles it first, and gives up before kube-scheduler times out. */
    public static final Duration RETRY_AFTER = Duration.ofSeconds(10);

    /** Unreadable pods after which a run ends: each may take seconds. */
    private static final int MAX_UNREADABLE = 3;

    private static final Logger LOG = LoggerFactory.getLogger(WriteReconciler.class);

    private final Ledger ledger;
    private final Cluster cluster;
    private final AtomicInteger rounds = new AtomicInteger();

    public WriteReconciler(Ledger ledger, Cluster cluster) {
        this.ledger = ledger;
        this.cluster = cluster;
    }

    /** Reads the pod and applies its state to the ledger. */
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
     * Reconciles all writes that are still unresolved after {@link #RETRY_AFTER}. Each run starts with another pod, so
     * that a pod that cannot be reconciled, for example because a policy rejects the annotation, does not delay the
     * others.
     */
    public void reconcileAll() {
        List<PodId> doubtful = new ArrayList<>(ledger.assumedFor(RETRY_AFTER));
        Collections.rotate(doubtful, rounds.incrementAndGet());
        int unreadable = 0;
        for (PodId pod : doubtful) {
            PodState state = reconcile(pod);
            if (!(state instanceof PodState.Unreadable)) {
                LOG.warn("reconciled {} found={}", pod, state);
            } else if (++unreadable == MAX_UNREADABLE) {
                return;
            }
        }
    }
}
