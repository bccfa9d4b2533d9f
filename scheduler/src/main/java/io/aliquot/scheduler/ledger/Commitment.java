package io.aliquot.scheduler.ledger;

import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.pods.Vgpus;
import java.util.Map;

/** The result of {@link Ledger#commit}. */
public sealed interface Commitment {
    /**
     * The pod holds these GPUs until it is released, ends or is deleted.
     *
     * @param containers by name
     * @param total what the pod holds of all GPUs together
     * @param visibleDevices how the node's container runtime names GPUs
     */
    record Granted(Map<String, Vgpus> containers, QuotaAmount total, VisibleDevices visibleDevices)
            implements Commitment {}

    /** The pod is bound already. */
    record AlreadyBound(String node) implements Commitment {}

    /** A Binding to this node was sent for the same version of the pod, and its outcome is unknown. */
    record Unresolved(String node) implements Commitment {}

    /** The pod does not fit; nothing changed. */
    record Conflict(String reason) implements Commitment {}
}
