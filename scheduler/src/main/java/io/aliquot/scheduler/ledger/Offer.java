package io.aliquot.scheduler.ledger;

/** What a node says to a pod that asks. */
public sealed interface Offer {
    /** The pod fits; the node would then be so full, 0 to 1. */
    record Fits(double fullness) implements Offer {}

    /**
     * The pod doesn't fit.
     *
     * @param reason a few constant words
     * @param hopeless whether no other pod's leaving helps
     */
    record Refuses(String reason, boolean hopeless) implements Offer {}
}
