package io.aliquot.scheduler.simulate;

import io.aliquot.scheduler.placement.Demand;
import io.aliquot.scheduler.placement.Room;

/**
 * Says which places are liked better for a pod. One for each replay, used by one thread; equal answers for equal
 * questions.
 *
 * @param <P> what it knows of a place
 */
interface Policy<P> {
    /** Tells of a node that there is from now on, or that has changed so. */
    default void entered(Room room) {}

    /** Tells of a node that is like this no more. */
    default void left(Room room) {}

    /** Tells of a demand before it is placed; once for each, whether or not it fits anywhere. */
    default void arrives(Demand demand) {}

    /** Another number whenever places have to be weighed again. */
    default int edition() {
        return 0;
    }

    /** Whether any place is as good as any other, and one is to be drawn instead of scored. */
    default boolean draws() {
        return false;
    }

    /**
     * What can be said of a place by itself.
     *
     * @param gpu the first of a demand's GPUs
     */
    P weigh(Demand demand, Room room, int gpu);

    /** How much a place is liked just now; the highest wins. */
    double score(P place);

    /** What decides between places of equal score; the lowest wins, and of those the node that comes first. */
    default double tie(Room before) {
        return before.free();
    }
}
