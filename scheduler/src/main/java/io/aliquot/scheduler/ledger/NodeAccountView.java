package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.CandidatePlacements;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.Optional;
import java.util.Set;

/** One node's account, read-only. A caller that needs several values of one instant synchronizes on it. */
public interface NodeAccountView {
    /** What {@link #changes} returns of a closed account; another one may be opened for the node. */
    long CLOSED = -1;

    /** How often anything that the answer to a pod depends on has changed; {@link #CLOSED} once the account is closed. */
    long changes();

    /** The node's free capacity now; empty if the node takes no pods. */
    Optional<FreeCapacity> freeCapacity();

    /**
     * Whether a pod fits; claims of this pod and of {@code without} are disregarded.
     *
     * @param candidates is filled with the pod's placements if it fits; empty if the caller needs none
     */
    Feasibility feasibility(
            String uid, PodGpuRequest request, Set<String> without, Optional<CandidatePlacements> candidates);
}
