package io.aliquot.scheduler.recovery;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.PodState;
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
import org.springframework.stereotype.Component;

/**
 * Finds the outcome of a Binding or a resize whose answer was lost. It reads the pod. If the pod still has the
 * resourceVersion that the write was conditional on, it first advances the version with an annotation that has no other
 * effect: after that the write is either visible or can no longer happen, however late the server processes it.
 */
@Component
public final class WriteReconciler {
    /** The sender of a write reconciles it first, and gives up before kube-scheduler times out. */
    public static final Duration RETRY_AFTER = Duration.ofSeconds(10);

    /** Unreadable pods after which a run ends: each may take seconds. */
    private static final int MAX_UNREADABLE = 3;

    private static final Logger LOG = LoggerFactory.getLogger(WriteReconciler.class);

    private final Ledger ledger;
    private final Cluster cluster;
    private final AtomicInteger runs = new AtomicInteger();

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
        apply(pod, state);
        return state;
    }

    public void apply(PodId pod, PodState state) {
        switch (state) {
            case PodState.Bound bound -> ledger.assume(bound.pod());
            case PodState.Gone gone -> ledger.discardAssumed(pod.uid());
            case PodState.Unbound unbound -> ledger.observeUnbound(pod.uid(), unbound.at());
            case PodState.Malformed malformed -> ledger.observeUnbound(pod.uid(), malformed.at());
            case PodState.Unreadable unreadable -> {
                // the next run reads the pod again
            }
        }
    }

    /**
     * Reconciles all writes that are still unresolved after {@link #RETRY_AFTER}. Each run starts with another pod, so
     * that a pod that cannot be reconciled, for example because a policy rejects the annotation, does not delay the
     * others.
     */
    public void reconcileAll() {
        List<PodId> unconfirmed = new ArrayList<>(ledger.assumedFor(RETRY_AFTER));
        Collections.rotate(unconfirmed, runs.incrementAndGet());
        int unreadable = 0;
        for (PodId pod : unconfirmed) {
            PodState state = reconcile(pod);
            if (!(state instanceof PodState.Unreadable)) {
                LOG.warn("reconciled {} found={}", pod, state);
            } else if (++unreadable == MAX_UNREADABLE) {
                return;
            }
        }
    }
}
