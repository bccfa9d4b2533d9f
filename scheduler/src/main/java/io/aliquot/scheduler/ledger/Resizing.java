package io.aliquot.scheduler.ledger;

import java.util.List;

/** The answer to {@link Ledger#resize}. */
public sealed interface Resizing {
    /**
     * The larger of what it holds and what it is to hold is set aside, until the pod is heard of in a version after
     * this one or the write is known to have failed.
     *
     * @param version of the pod, which the write must be conditional on
     * @param shares what it is to hold
     */
    record Prepared(PodId pod, String node, long version, List<ContainerAllocation> shares) implements Resizing {}

    /** It holds just that. */
    record Unchanged() implements Resizing {}

    /** Nothing changed: there is not as much as it is to hold, or it isn't known now. */
    record Refused(String reason) implements Resizing {}

    /** Nothing changed: a resize was sent before, and its outcome is not known. */
    record Undecided() implements Resizing {}

    /** No such pod is bound, as far as the cluster has told. */
    record Unknown() implements Resizing {}
}
