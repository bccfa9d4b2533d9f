package io.aliquot.scheduler.ledger;

import java.util.List;

/** The result of {@link Ledger#resize}. */
public sealed interface Resizing {
    /**
     * The ledger counts the larger of the amounts before and after, until a later version of the pod is reported or the
     * resize is rolled back.
     *
     * @param version of the pod that the write must be conditional on
     * @param shares what the pod's containers are to hold
     */
    record Prepared(PodId pod, String node, long version, List<ContainerShare> shares) implements Resizing {}

    /** The pod holds these amounts already. */
    record Unchanged() implements Resizing {}

    /** The amounts are not free or not possible; nothing changed. */
    record Refused(String reason) implements Resizing {}

    /** The outcome of an earlier resize is unknown; nothing changed. */
    record Unresolved() implements Resizing {}

    /** No bound pod of this uid is known. */
    record Unknown() implements Resizing {}
}
