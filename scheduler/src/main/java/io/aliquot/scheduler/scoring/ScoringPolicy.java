package io.aliquot.scheduler.scoring;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import java.util.List;

/**
 * Says which of the places where a pod fits are liked better. Used by one thread at a time; equal answers for equal
 * histories.
 *
 * @param <P> what it knows of a place
 */
public interface ScoringPolicy<P> {
    /** Tells of a node that there is from now on, or that has changed so. */
    default void entered(FreeCapacity room) {}

    /** Tells of a node that is like this no more. */
    default void left(FreeCapacity room) {}

    /** Tells of a demand before it is placed; once for each, whether or not it fits anywhere. */
    default void observe(DemandVector demand) {}

    /** Another number whenever places have to be weighed again. To be asked before places are weighed or scored. */
    default int modelVersion() {
        return 0;
    }

    /** Another object whenever scores have to be asked for again. To be asked after the judge was told of something. */
    default PriceSnapshot prices() {
        return PriceSnapshot.STILL;
    }

    /**
     * What can be said of a place by itself.
     *
     * @param before the node's room
     * @param after the same with the demand on it
     */
    P evaluate(DemandVector demand, FreeCapacity before, FreeCapacity after);

    /** How much a place is liked; the highest wins. */
    double score(P place);

    /** Whether a place is liked no less than another, however prices move. */
    default boolean dominates(P place, P other) {
        return place.equals(other);
    }

    /** What is added for the node, for those whose places are liked alike. */
    default double tieBreak(FreeCapacity before) {
        return 0;
    }

    /** No less than what {@link #score} would say, for less. */
    default double upperBound(P place) {
        return score(place);
    }

    /** What a place costs by prices, in this market or the last in which it was scored, for {@link PriceSnapshot#upperBound}. */
    default double priceCost(P place) {
        return 0;
    }

    /** What a place's cost grows by for each unit of {@link PriceSnapshot}'s weight; less than 0 where it shrinks. */
    default double idleCost(P place) {
        return 0;
    }

    /** What that is made of; nothing where there is nothing to tell. */
    default List<ScoreTerm> terms(P place) {
        return List.of();
    }
}
