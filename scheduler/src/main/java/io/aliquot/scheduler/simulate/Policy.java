package io.aliquot.scheduler.simulate;

/**
 * Says which places are liked better for a pod. One for each replay, used by one thread; equal answers for equal
 * questions.
 */
interface Policy {
    /** Tells of a demand before it is placed; once for each, whether or not it fits anywhere. */
    default void arrives(Demand demand) {}

    /** Another number whenever scores may be different from before. */
    default int edition() {
        return 0;
    }

    /** Whether any place is as good as any other, and one is to be drawn instead of scored. */
    default boolean draws() {
        return false;
    }

    /** How much a node is liked that would change like this for a demand; the highest wins. */
    double score(Demand demand, NodeState before, NodeState after);

    /** What decides between nodes of equal score; the lowest wins, and of those the one that comes first. */
    default double tie(NodeState before) {
        return 0;
    }
}
