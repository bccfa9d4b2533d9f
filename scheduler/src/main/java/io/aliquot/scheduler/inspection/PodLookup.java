package io.aliquot.scheduler.inspection;

import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.Optional;

/**
 * Reads single pods, also Pending ones, from the API server. Calls return within seconds, or throw an
 * {@link ApiException} with status 503 if the API server gives no answer.
 */
public interface PodLookup {
    /**
     * A pod.
     *
     * @param node empty for a pod without a node
     * @param ended whether the pod's phase is Succeeded or Failed
     * @param schedulerName the scheduler that binds the pod
     * @param priority the pod's priority in Kubernetes
     * @param mayPreempt false for {@code preemptionPolicy: Never}
     * @param schedulerMessage why kube-scheduler found no node in its last attempt; empty if it has made no attempt or
     *     has found a node
     */
    record Pod(
            PodId id,
            String node,
            boolean ended,
            String schedulerName,
            ParsedRequest request,
            int priority,
            boolean mayPreempt,
            String schedulerMessage) {}

    /** A pod's GPU requests, as far as they can be parsed. */
    sealed interface ParsedRequest {
        record Valid(PodGpuRequest request) implements ParsedRequest {}

        /**
         * The pod's resources or annotations contradict each other or have invalid values.
         *
         * @param reason a sentence that says what to write instead
         */
        record Invalid(String reason) implements ParsedRequest {}
    }

    /** Empty if no pod has that name. */
    Optional<Pod> find(String namespace, String name);
}
