package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.FullnessScores;
import io.aliquot.scheduler.placement.PriceSnapshot;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * What nodes said to one kind of pod, by their accounts' numbers. In arrays: thousands are looked at for each pod, and most
 * of them are not looked at more closely. Callers synchronize on it.
 */
final class CachedResults {
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

    /** What was judged in other editions is of no use any more. */
    void renew(int edition) {
        if (this.edition != edition) {
            this.edition = edition;
            Arrays.fill(changes, 0);
        }
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

    void put(int number, long change, Feasibility offer) {
        if (number >= changes.length) {
            grow(Math.max(number + 1, changes.length * 2));
        }
        menus[number] = null;
        seenIn[number] = null;
        if (offer instanceof ScoringCache<?>.Evaluated judged) {
            renew(judged.menu.edition);
            own[number] = judged.tie;
            saw(number, PriceSnapshot.STILL, Double.POSITIVE_INFINITY, 0);
            menus[number] = judged.menu;
            least[number] = judged.menu.least;
            most[number] = judged.menu.most;
        } else {
            own[number] = offer instanceof Feasibility.Fits fits ? fits.fullness() : FullnessScores.NONE;
        }
        changes[number] = change;
        offers[number] = offer;
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
