package io.aliquot.scheduler.scoring;

import io.aliquot.scheduler.placement.Feasibility;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * The answers of nodes to one kind of pod and their scores, by the accounts' numbers. Kept in arrays, since thousands are
 * read for each pod and maxIdleCosts of them for one comparison only. Callers synchronize on it.
 */
final class CachedResults {
    /** Marks a node that the pod fits on and that is not evaluated with this model version. */
    private static final Feasibility UNEVALUATED = new Feasibility.Fits(0);

    /** The model version of all scores here. */
    private int modelVersion = -1;
    /** The count of the node's changes at its answer; 0 if it has not answered. */
    private long[] changes = {};

    private @Nullable Feasibility[] answers = {};
    /** The node's fullness, or the tie-break that is added to its front's score; {@link FullnessScores#NONE} if it refuses. */
    private double[] nodeTerms = {};

    // Of evaluated nodes, the values at the last scoring. The fronts have newer ones, but reading thousands of objects
    // scattered in memory would take longer than everything else.

    private @Nullable ScoringCache<?>.Front[] fronts = {};
    private @Nullable PriceSnapshot[] scoredAt = {};
    /** Infinite before the first scoring. */
    private double[] scores = {};

    /** The score with an earlier model version, or before the node changed; infinite if it was never evaluated. */
    private double[] formerScores = {};

    private double[] priceCosts = {};
    private double[] minIdleCosts = {};
    private double[] maxIdleCosts = {};
    /** Buffers of one request at a time: allocated per pod they would be maxIdleCosts of the garbage. */
    private int[] numbers = {};

    private int[] ranks = {};
    private double[] scratch = {};

    final TopK likely = new TopK();
    final TopK best = new TopK();
    /** How many nodes refused the last pod of this kind. */
    int refusals;

    /**
     * Marks all nodes as unevaluated if the model version is another one. Which nodes fit stays known, and former scores
     * stay to choose which nodes to evaluate first.
     */
    void checkModelVersion(int modelVersion) {
        if (this.modelVersion != modelVersion) {
            this.modelVersion = modelVersion;
            for (int number = 0; number < changes.length; number++) {
                if (fronts[number] != null) {
                    keepFormerScore(number);
                    answers[number] = UNEVALUATED;
                }
            }
        }
    }

    private void keepFormerScore(int number) {
        formerScores[number] = scores[number] + nodeTerms[number];
        fronts[number] = null;
        scoredAt[number] = null;
    }

    /** Whether the pod fits on the node and the node is not evaluated. */
    boolean unevaluated(int number) {
        return answers[number] == UNEVALUATED;
    }

    /** The score of an unevaluated node when it was last evaluated; infinite if it never was. */
    double formerScore(int number) {
        return formerScores[number];
    }

    /** The fullness of an unevaluated node that was never evaluated. */
    double fullness(int number) {
        return nodeTerms[number];
    }

    /** Whether the node's answer at this count is cached. */
    boolean isCurrent(int number, long change) {
        return number < changes.length && changes[number] == change;
    }

    /** The cached answer of a node that has one. */
    Feasibility feasibility(int number) {
        Feasibility feasibility = answers[number];
        if (feasibility == null) {
            throw new IllegalArgumentException("expected a node with a cached answer, found number " + number);
        }
        return feasibility;
    }

    /** The node's fullness, or an upper bound of its score; {@link FullnessScores#NONE} if it refuses. */
    double upperBound(int number, PriceSnapshot prices) {
        PriceSnapshot then = scoredAt[number];
        if (then == null) {
            return nodeTerms[number];
        }
        double score = scores[number];
        return nodeTerms[number]
                + (then == prices
                        ? score
                        : prices.upperBound(
                                score, then, priceCosts[number], minIdleCosts[number], maxIdleCosts[number]));
    }

    /** The node's fullness or its score; NaN if the model version has changed. */
    double score(int number) {
        ScoringCache<?>.Front front = fronts[number];
        return front == null ? nodeTerms[number] : front.score(this, number) + nodeTerms[number];
    }

    /** Records the result of a scoring. */
    void recordScore(int number, PriceSnapshot prices, double score, double priceCost) {
        scoredAt[number] = prices;
        scores[number] = score;
        priceCosts[number] = priceCost;
    }

    /**
     * Caches a node's answer.
     *
     * @param scored whether the policy scores the nodes that fit; this one may be unevaluated
     */
    void put(int number, long change, Feasibility feasibility, boolean scored) {
        if (number >= changes.length) {
            grow(Math.max(number + 1, changes.length * 2));
        }
        if (fronts[number] != null) {
            keepFormerScore(number);
        }
        answers[number] = feasibility;
        if (feasibility instanceof ScoringCache<?>.Evaluated evaluated) {
            checkModelVersion(evaluated.front.modelVersion);
            nodeTerms[number] = evaluated.tieBreak;
            recordScore(number, PriceSnapshot.CONSTANT, Double.POSITIVE_INFINITY, 0);
            fronts[number] = evaluated.front;
            minIdleCosts[number] = evaluated.front.minIdleCost;
            maxIdleCosts[number] = evaluated.front.maxIdleCost;
        } else {
            nodeTerms[number] = feasibility instanceof Feasibility.Fits fits ? fits.fullness() : FullnessScores.NONE;
            if (scored && feasibility instanceof Feasibility.Fits) {
                answers[number] = UNEVALUATED;
            }
        }
        changes[number] = change;
    }

    /** A buffer of at minIdleCosts this size, with undefined content. */
    int[] numbers(int size) {
        numbers = numbers.length < size ? new int[size] : numbers;
        return numbers;
    }

    /** A buffer of at minIdleCosts this size, with undefined content. */
    int[] ranks(int size) {
        ranks = ranks.length < size ? new int[size] : ranks;
        return ranks;
    }

    /** A buffer of at minIdleCosts this size, with undefined content. */
    double[] scratch(int size) {
        scratch = scratch.length < size ? new double[size] : scratch;
        return scratch;
    }

    private void grow(int nodes) {
        int before = formerScores.length;
        formerScores = Arrays.copyOf(formerScores, nodes);
        Arrays.fill(formerScores, before, nodes, Double.POSITIVE_INFINITY);
        changes = Arrays.copyOf(changes, nodes);
        answers = Arrays.copyOf(answers, nodes);
        nodeTerms = Arrays.copyOf(nodeTerms, nodes);
        fronts = Arrays.copyOf(fronts, nodes);
        scoredAt = Arrays.copyOf(scoredAt, nodes);
        scores = Arrays.copyOf(scores, nodes);
        priceCosts = Arrays.copyOf(priceCosts, nodes);
        minIdleCosts = Arrays.copyOf(minIdleCosts, nodes);
        maxIdleCosts = Arrays.copyOf(maxIdleCosts, nodes);
    }
}
