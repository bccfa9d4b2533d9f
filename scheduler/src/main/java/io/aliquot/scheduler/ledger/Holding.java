package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.HostResources;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;

/**
 * What one pod takes of one node.
 *
 * @param shares what its containers hold; empty for a reservation
 * @param perGpu amounts of each GPU, by UUID; may be more than the containers' shares while they may use more
 * @param hostRequests CPU and memory that it requests
 * @param priority value of the pod's PriorityClass; 0 until the watch reports the pod
 * @param created time of creation; {@link Instant#MAX} until the watch reports the pod
 * @param bound time of binding; {@link Instant#MAX} until the watch reports the pod
 * @param leavesBy deadline by which its node ends it; {@link Instant#MAX} unless it is being deleted
 * @param shrunkAt when a resize made its share smaller, in nanoseconds of the ledger's clock; empty once each container has
 *     been measured to use no more than its limit
 */
public record Holding(
        PodId pod,
        State state,
        List<ContainerShare> shares,
        Map<String, GpuAmount> perGpu,
        HostResources hostRequests,
        int priority,
        Instant created,
        Instant bound,
        Instant leavesBy,
        OptionalLong shrunkAt) {
    /** How far the claim is confirmed. */
    public enum State {
        /** Reserved between Filter and Bind. */
        RESERVED,
        /** Reserved for a preemptor. Together with its running victims it may exceed the capacity. */
        RESERVED_FOR_PREEMPTOR,
        /** Granted to a Binding that was sent, or read from the API server; the watch has not reported it yet. */
        ASSUMED,
        /** Reported by the watch. */
        HELD,
        /** The pod was deleted by force; its containers may still run. */
        LINGERING
    }

    /** Whether the watch has reported the pod, and it holds a share of this GPU. */
    public boolean isShareOf(String gpu) {
        return state == State.HELD && perGpu.containsKey(gpu);
    }
}
