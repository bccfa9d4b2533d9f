package io.aliquot.scheduler.ledger;

/** Whether a pod fits on a node. */
public sealed interface Feasibility {
    /** The answer for a node that the ledger does not know. */
    Refuses UNKNOWN_NODE = new Refuses(NodeAccount.UNKNOWN.reason(), true);

    /** The pod fits. */
    non-sealed class Fits implements Feasibility {
        private final double fullness;

        public Fits(double fullness) {
            this.fullness = fullness;
        }

        /** How full the node is with the pod, 0 to 1. */
        public double fullness() {
            return fullness;
        }

        @Override
        public String toString() {
            return "Fits[fullness=" + fullness + "]";
        }
    }

    /**
     * The pod does not fit.
     *
     * @param reason a few constant words
     * @param hopeless whether the pod would not fit even if all other pods were gone
     */
    record Refuses(String reason, boolean hopeless) implements Feasibility {}
}
