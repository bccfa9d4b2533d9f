package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.HostResources;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;

/**
 * What one pod takes of one node.
 *
 * @param age of this state, as far as this ledger knows
 * @param shares what its containers hold, or would; empty for {@link State#KEPT}
 * @param perGpu what is set aside for it of each GPU, by UUID
 * @param requests of CPU and memory
 * @param priority Kubernetes'; 0 until the cluster told of the pod
 * @param created when the pod was; {@link Instant#MAX} until the cluster told of it
 * @param bound when the pod got its node; {@link Instant#MAX} until the cluster told of it
 * @param leavesBy when it is gone at the latest; {@link Instant#MAX} while it stays
 */
public record Holding(
        PodId pod,
        State state,
        Duration age,
        List<ContainerAllocation> shares,
        Map<String, GpuAmount> perGpu,
        HostResources requests,
        int priority,
        Instant created,
        Instant bound,
        Instant leavesBy) {
    /** How sure it is that the pod holds this. */
    public enum State {
        /** Kept free for a moment for a pod that will probably come. */
        EXPECTED,
        /** Kept free for a pod for which others are made to leave; with those still there it may be too much. */
        KEPT,
        /** Granted to a Binding that was sent, or read beside the watch; the watch has not told of it yet. */
        ASSUMED,
        /** As the cluster tells. */
        HELD,
        /** The pod was deleted by force: the cluster knows it no more, but its containers may take time to end. */
        LINGERING
    }
}
