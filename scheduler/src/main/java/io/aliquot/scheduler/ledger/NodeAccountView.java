package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.CandidatePlacements;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.Optional;
import java.util.Set;

/** One node's account, read-only. A caller that needs several values of one instant synchronizes on it. */
public interface NodeAccountView {
    /** No two open accounts have the same number; numbers of closed ones are given again. */
    int number();

    /** The count of {@link ChangeCounter} at the last change: differs after each change, and is never repeated. */
    long changes();

    /** The node's free capacity now. */
    Capacity capacity();

    /**
     * Whether a pod fits; claims of this pod and of {@code without} are disregarded.
     *
     * @param candidates is filled with the pod's placements if it fits; empty if the caller needs none
     */
    Feasibility feasibility(
            String uid, PodGpuRequest request, Set<String> without, Optional<CandidatePlacements> candidates);

    /**
     * Free capacity of one instant.
     *
     * @param changes {@link NodeAccountView#changes} then
     * @param free empty if the node takes no pods
     */
    record Capacity(long changes, Optional<FreeCapacity> free) {}
}
