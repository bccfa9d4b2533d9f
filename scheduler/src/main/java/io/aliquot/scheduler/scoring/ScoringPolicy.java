package io.aliquot.scheduler.scoring;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import java.util.List;

/**
 * Scores the candidate placements of pods. Used by one thread at a time; equal calls give equal results.
 *
 * @param <P> the evaluation of a candidate
 */
public interface ScoringPolicy<P> {
    /** Reports a node that is new, or its new free capacity after {@link #nodeRemoved} with the former one. */
    default void nodeAdded(FreeCapacity node) {}

    /** Reports that a node is gone or has no longer this free capacity. */
    default void nodeRemoved(FreeCapacity node) {}

    /** Reports the demand of a pod that is to be placed; once per pod, whether or not it fits. */
    default void observe(DemandVector demand) {}

    /** Differs whenever evaluations become invalid. Called before candidates are evaluated or scored. */
    default int modelVersion() {
        return 0;
    }

    /** Another object whenever scores become invalid. Called after each report. */
    default PriceSnapshot prices() {
        return PriceSnapshot.CONSTANT;
    }

    /**
     * Evaluates a candidate, independently of prices.
     *
     * @param before the node's free capacity
     * @param after its free capacity with the pod
     */
    P evaluate(DemandVector demand, FreeCapacity before, FreeCapacity after);

    /** The score of a candidate now; the highest wins. */
    double score(P candidate);

    /** Whether a candidate's score is at least another's at all prices. */
    default boolean dominates(P candidate, P other) {
        return candidate.equals(other);
    }

    /** Added to the score of the node; decides between nodes whose candidates have equal scores. */
    default double tieBreak(FreeCapacity before) {
        return 0;
    }

    /** An upper bound of {@link #score}, cheaper to compute. */
    default double upperBound(P candidate) {
        return score(candidate);
    }

    /** The part of the cost that depends on prices, at the last scoring; for {@link PriceSnapshot#upperBound}. */
    default double priceCost(P candidate) {
        return 0;
    }

    /** The change of the cost per unit of {@link PriceSnapshot#weight}. */
    default double idleCost(P candidate) {
        return 0;
    }

    /** The terms of the score; may be empty. */
    default List<ScoreTerm> terms(P candidate) {
        return List.of();
    }
}
