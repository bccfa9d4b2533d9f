package io.aliquot.scheduler.scoring;

/*
 * Prices move a little all the time, and with them every score, by next to nothing. To weigh each place anew each time
 * would be most of what a decision costs where thousands of nodes differ. But from how far prices have moved follows how far a
 * score can have risen, for all nodes from two numbers, so that only those are weighed again that might be among the best.
 */
/** What scores depend on besides the places: while a judge is in one market, a place has one score. */
public final class PriceSnapshot {
    /** One that never changes. */
    public static final PriceSnapshot STILL = new PriceSnapshot(0, 0);

    /** Far above what sums of such terms are rounded by, and far below what places differ by. */
    private static final double ROUNDING = 1e-9;
    /** A fall of 1 or more is one of everything. */
    private static final double LEAST = 0.1;

    /** Sum over all markets up to this, of the logarithm by which the price that fell most did so: not less than any fell. */
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
     * The one after this.
     *
     * @param least part of what it cost, 1 or less, that everything still costs at least
     */
    public PriceSnapshot next(double least, double weight) {
        return new PriceSnapshot(fall - Math.log(Math.max(least, LEAST)), weight);
    }

    /**
     * No less than a place's score in this market.
     *
     * @param score in an earlier one, or more
     * @param before that market
     * @param priced what the place cost by prices, then or before
     * @param least what its cost grows by for each unit of weight, or less
     * @param most the same, or more
     */
    public double upperBound(double score, PriceSnapshot before, double priced, double least, double most) {
        double more = weight - before.weight;
        double rise = priced * Math.min(1, fall - before.fall) - more * (more > 0 ? least : most);
        double weighed = Math.max(Math.abs(least), Math.abs(most));
        return score + rise + ROUNDING * (1 + Math.abs(score) + priced + weighed * (weight + before.weight));
    }
}
