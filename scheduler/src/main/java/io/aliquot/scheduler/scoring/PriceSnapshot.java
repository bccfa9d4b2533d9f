package io.aliquot.scheduler.scoring;

/*
 * With every placement prices change a little, and with them every score. Scoring every candidate again each time would
 * be most of the cost of a decision where thousands of nodes differ. But how far prices have moved bounds how far any score
 * can have risen, by two numbers for all nodes, so that only candidates that may be among the best are scored again.
 */
/** The prices that scores depend on; at one snapshot a candidate has one score. */
public final class PriceSnapshot {
    /** The prices of a policy without prices. */
    public static final PriceSnapshot CONSTANT = new PriceSnapshot(0, 0);

    /** Far above the rounding errors of such sums, and far below the differences between candidates. */
    private static final double ROUNDING = 1e-9;
    /** A fall of 1 or more means that everything may cost nothing. */
    private static final double MIN_REMAINING = 0.1;

    /** Sum over all snapshots so far of the logarithm of the steepest fall of any price: no price fell more in total. */
    private final double fall;

    private final double weight;

    private PriceSnapshot(double fall, double weight) {
        this.fall = fall;
        this.weight = weight;
    }

    /** What a unit of idleness weighs. */
    public double weight() {
        return weight;
    }

    /**
     * The next snapshot.
     *
     * @param minRemaining the smallest ratio, 1 or less, of any new price to its former one
     */
    public PriceSnapshot next(double minRemaining, double weight) {
        return new PriceSnapshot(fall - Math.log(Math.max(minRemaining, MIN_REMAINING)), weight);
    }

    /**
     * An upper bound of a candidate's score at these prices.
     *
     * @param score at an earlier snapshot, or an upper bound of it
     * @param before that snapshot
     * @param priceCost the candidate's {@link ScoringPolicy#priceCost} then or before
     * @param minIdleCost its {@link ScoringPolicy#idleCost}, or a lower bound
     * @param maxIdleCost its {@link ScoringPolicy#idleCost}, or an upper bound
     */
    public double upperBound(
            double score, PriceSnapshot before, double priceCost, double minIdleCost, double maxIdleCost) {
        double more = weight - before.weight;
        double rise = priceCost * Math.min(1, fall - before.fall) - more * (more > 0 ? minIdleCost : maxIdleCost);
        double idleCost = Math.max(Math.abs(minIdleCost), Math.abs(maxIdleCost));
        return score + rise + ROUNDING * (1 + Math.abs(score) + priceCost + idleCost * (weight + before.weight));
    }
}
