package io.aliquot.scheduler.scoring;

import io.aliquot.scheduler.ledger.Feasibility;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * What nodes said to one kind of pod, by their accounts' numbers. In arrays: thousands are looked at for each pod, and most
 * of them are not looked at more closely. Callers synchronize on it.
 */
final class CachedResults {
    /** Stands for a node that the pod fits on and that the judge has not evaluated in this edition. */
    private static final Feasibility UNJUDGED = new Feasibility.Fits(0);

    /** What the judge thinks here is of this edition of it. */
    private int edition = -1;
    /** The count of the node's changes when it answered; 0 where it hasn't. */
    private long[] changes = {};

    private @Nullable Feasibility[] offers = {};
    /** How full it would be; what is added to its menu's score where it is judged; {@link FullnessScores#NONE} where it refuses. */
    private double[] own = {};

    // Of those that are judged, what was seen when the judge last looked. The menus know newer things: but to go to
    // each of thousands, wherever in memory it lies, would take longer than all else.

    private @Nullable ScoringCache<?>.Menu[] menus = {};
    private @Nullable PriceSnapshot[] seenIn = {};
    /** Infinite where it never looked. */
    private double[] scores = {};

    /** What a node was liked in an earlier edition, or before it changed; infinite where it was never evaluated. */
    private double[] hints = {};

    private double[] priced = {};
    private double[] least = {};
    private double[] most = {};
    /** To work in, for one question at a time: new ones for each pod would be most of the garbage. */
    private int[] numbers = {};

    private int[] ranks = {};
    private double[] likings = {};

    final TopK likely = new TopK();
    final TopK best = new TopK();
    /** So many nodes refused the last pod of this kind. */
    int refusing;

    /**
     * The judge has another edition: every node has to be evaluated again. Which nodes fit stays known, and what each was
     * liked stays as a hint of which to evaluate first.
     */
    void renew(int edition) {
        if (this.edition != edition) {
            this.edition = edition;
            for (int number = 0; number < changes.length; number++) {
                if (menus[number] != null) {
                    outdate(number);
                    offers[number] = UNJUDGED;
                }
            }
        }
    }

    private void outdate(int number) {
        hints[number] = scores[number] + own[number];
        menus[number] = null;
        seenIn[number] = null;
    }

    /** Whether the pod fits on the node, and the judge has yet to evaluate it. */
    boolean unjudged(int number) {
        return offers[number] == UNJUDGED;
    }

    /** What an unjudged node was liked when it was last evaluated; infinite where it never was. */
    double hint(int number) {
        return hints[number];
    }

    /** How full an unjudged node would be that was never evaluated. */
    double fullness(int number) {
        return own[number];
    }

    boolean has(int number, long change) {
        return number < changes.length && changes[number] == change;
    }

    /** What there is for whoever {@link #has} it. */
    Feasibility offer(int number) {
        Feasibility offer = offers[number];
        if (offer == null) {
            throw new IllegalArgumentException("node " + number + " was not asked");
        }
        return offer;
    }

    /** How full it would be, or no less than what the judge would say; {@link FullnessScores#NONE} of one that refuses. */
    double atMost(int number, PriceSnapshot market) {
        PriceSnapshot then = seenIn[number];
        if (then == null) {
            return own[number];
        }
        double score = scores[number];
        return own[number]
                + (then == market
                        ? score
                        : market.upperBound(score, then, priced[number], least[number], most[number]));
    }

    /** How full it would be, or how much the judge likes it just now: not a number where it has learnt more since. */
    double exactly(int number) {
        ScoringCache<?>.Menu menu = menus[number];
        return menu == null ? own[number] : menu.score(this, number) + own[number];
    }

    /** The judge looked at it, and this is what it saw. */
    void saw(int number, PriceSnapshot market, double score, double price) {
        seenIn[number] = market;
        scores[number] = score;
        priced[number] = price;
    }

    /**
     * A node has answered.
     *
     * @param judged whether the judge evaluates the nodes that fit, of which this may not be one yet
     */
    void put(int number, long change, Feasibility offer, boolean judged) {
        if (number >= changes.length) {
            grow(Math.max(number + 1, changes.length * 2));
        }
        if (menus[number] != null) {
            outdate(number);
        }
        offers[number] = offer;
        if (offer instanceof ScoringCache<?>.Evaluated evaluated) {
            renew(evaluated.menu.edition);
            own[number] = evaluated.tie;
            saw(number, PriceSnapshot.STILL, Double.POSITIVE_INFINITY, 0);
            menus[number] = evaluated.menu;
            least[number] = evaluated.menu.least;
            most[number] = evaluated.menu.most;
        } else {
            own[number] = offer instanceof Feasibility.Fits fits ? fits.fullness() : FullnessScores.NONE;
            if (judged && offer instanceof Feasibility.Fits) {
                offers[number] = UNJUDGED;
            }
        }
        changes[number] = change;
    }

    /** At least so many, of what is void now. */
    int[] numbers(int size) {
        numbers = numbers.length < size ? new int[size] : numbers;
        return numbers;
    }

    /** At least so many, of what is void now. */
    int[] ranks(int size) {
        ranks = ranks.length < size ? new int[size] : ranks;
        return ranks;
    }

    /** At least so many, of what is void now. */
    double[] likings(int size) {
        likings = likings.length < size ? new double[size] : likings;
        return likings;
    }

    private void grow(int nodes) {
        int before = hints.length;
        hints = Arrays.copyOf(hints, nodes);
        Arrays.fill(hints, before, nodes, Double.POSITIVE_INFINITY);
        changes = Arrays.copyOf(changes, nodes);
        offers = Arrays.copyOf(offers, nodes);
        own = Arrays.copyOf(own, nodes);
        menus = Arrays.copyOf(menus, nodes);
        seenIn = Arrays.copyOf(seenIn, nodes);
        scores = Arrays.copyOf(scores, nodes);
        priced = Arrays.copyOf(priced, nodes);
        least = Arrays.copyOf(least, nodes);
        most = Arrays.copyOf(most, nodes);
    }
}
