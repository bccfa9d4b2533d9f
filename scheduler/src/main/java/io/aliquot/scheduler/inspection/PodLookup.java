package io.aliquot.scheduler.inspection;

import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.Optional;

/** Pods as the API server has them now, those that wait included. Calls return within seconds. */
public interface PodLookup {
    /**
     * A pod.
     *
     * @param node empty while it has none
     * @param ended whether its containers have ended for good
     * @param schedulerName who is to place it
     * @param wish what it asks for
     * @param priority Kubernetes'
     * @param preempts whether it may push pods of lower priority aside
     * @param verdict why kube-scheduler found no node for it when it last tried; empty where it hasn't yet, or has found one
     */
    record Pod(
            PodId id,
            String node,
            boolean ended,
            String schedulerName,
            Wish wish,
            int priority,
            boolean preempts,
            String verdict) {}

    /** What a pod asks for. */
    sealed interface Wish {
        record Clear(PodGpuRequest ask) implements Wish {}

        /** A sentence that says what to write instead. */
        record Nonsense(String why) implements Wish {}
    }

    /** Empty where there is no pod of that name. */
    Optional<Pod> find(String namespace, String name) throws UnansweredException;
}
