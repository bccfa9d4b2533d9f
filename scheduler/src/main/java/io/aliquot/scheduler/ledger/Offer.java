package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.Term;
import java.util.List;
import java.util.OptionalDouble;

/** What a node says to a pod that asks. */
public sealed interface Offer {
    /** The pod fits. */
    non-sealed class Fits implements Offer {
        private final double fullness;

        Fits(double fullness) {
            this.fullness = fullness;
        }

        /** How full the node would be then, 0 to 1. */
        public double fullness() {
            return fullness;
        }

        /** How much the judge likes the node just now; nothing where it was not asked, or has learnt more since. */
        OptionalDouble judged() {
            return OptionalDouble.empty();
        }

        /** No less than that, known for less. */
        double judgedAtMost() {
            return Double.POSITIVE_INFINITY;
        }

        /** What it is made of; nothing where there is none. */
        List<Term> terms() {
            return List.of();
        }

        /** Whether the judge has learnt more since. */
        boolean stale() {
            return false;
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
    record Refuses(String reason, boolean hopeless) implements Offer {}
}
