package io.aliquot.scheduler.placement;

import java.util.List;

/**
 * Says which of the places where a pod fits are liked better. Used by one thread at a time; equal answers for equal
 * histories.
 *
 * @param <P> what it knows of a place
 */
public interface Judge<P> {
    /** Tells of a node that there is from now on, or that has changed so. */
    default void entered(Room room) {}

    /** Tells of a node that is like this no more. */
    default void left(Room room) {}

    /** Tells of a demand before it is placed; once for each, whether or not it fits anywhere. */
    default void arrives(Demand demand) {}

    /** Another number whenever places have to be weighed again. To be asked before places are weighed or scored. */
    default int edition() {
        return 0;
    }

    /**
     * Another number whenever scores have to be asked for again: while it stays as it is, a place has the same one. To be
     * asked after the judge was told of something.
     */
    default int market() {
        return 0;
    }

    /**
     * What can be said of a place by itself.
     *
     * @param before the node's room
     * @param after the same with the demand on it
     */
    P weigh(Demand demand, Room before, Room after);

    /** How much a place is liked; the highest wins. */
    double score(P place);

    /** What that is made of; nothing where there is nothing to tell. */
    default List<Term> terms(P place) {
        return List.of();
    }
}
