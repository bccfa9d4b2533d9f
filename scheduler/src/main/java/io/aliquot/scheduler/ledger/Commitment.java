package io.aliquot.scheduler.ledger;

import io.aliquot.api.Vgpus;
import io.aliquot.api.VisibleDevices;
import java.util.Map;

/** The answer to {@link Ledger#commit}. */
public sealed interface Commitment {
    /**
     * The pod holds this now, and until it is released, ends or is deleted.
     *
     * @param containers by name
     * @param visibleDevices how the node's runtime wants GPUs named
     */
    record Granted(Map<String, Vgpus> containers, VisibleDevices visibleDevices) implements Commitment {}

    /** The cluster says that the pod is bound already. */
    record AlreadyBound(String node) implements Commitment {}

    /** A Binding to this node was sent for the same version of the pod, and its outcome is not known. */
    record Undecided(String node) implements Commitment {}

    /** Nothing changed. */
    record Conflict(String reason) implements Commitment {}
}
