package io.aliquot.scheduler.ledger;

/** What a node says to a pod that asks. */
public sealed interface Feasibility {
    /** The answer for a node that the ledger does not know. */
    Refuses UNKNOWN_NODE = new Refuses(NodeAccount.UNKNOWN.reason(), true);

    /** The pod fits. */
    non-sealed class Fits implements Feasibility {
        private final double fullness;

        public Fits(double fullness) {
            this.fullness = fullness;
        }

        /** How full the node would be then, 0 to 1. */
        public double fullness() {
            return fullness;
        }

        @Override
        public String toString() {
            return "Fits[fullness=" + fullness + "]";
        }
    }

    /**
     * The pod doesn't fit.
     *
     * @param reason a few constant words
     * @param hopeless whether no other pod's leaving helps
     */
    record Refuses(String reason, boolean hopeless) implements Feasibility {}
}
