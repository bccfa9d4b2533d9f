package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.Term;
import java.util.List;
import java.util.OptionalDouble;
import org.jspecify.annotations.Nullable;

/** What a node says to a pod that asks. */
public sealed interface Offer {
    /** The pod fits. */
    final class Fits implements Offer {
        private final double fullness;
        private final Judging<?>.@Nullable Options options;

        Fits(double fullness, Judging<?>.@Nullable Options options) {
            this.fullness = fullness;
            this.options = options;
        }

        /** How full the node would be then, 0 to 1. */
        public double fullness() {
            return fullness;
        }

        /** How much the judge likes the node just now; nothing where it was not asked, or has learnt more since. */
        OptionalDouble judged() {
            return options == null ? OptionalDouble.empty() : options.liking();
        }

        /** What that is made of. */
        List<Term> terms() {
            return options == null ? List.of() : options.terms();
        }

        /** Whether the judge has learnt more since. */
        boolean stale() {
            return options != null && options.stale();
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
