package io.aliquot.scheduler.scoring;

/**
 * Scales scores of nodes to the priorities 0 to 10 that kube-scheduler expects from an extender.
 */
public final class PriorityScale {
    public static final int BEST = 10;
    public static final double NONE = Double.NEGATIVE_INFINITY;
    private static final int BEST_OF_THE_OTHERS = 9;
    private static final int WITH_PREFERENCES = 5;

    private final boolean preferences;
    private double lowest = Double.POSITIVE_INFINITY;
    private double highest = Double.NEGATIVE_INFINITY;

    /** {@code preferences}: whether the pod has node preferences of its own. */
    public PriorityScale(boolean preferences) {
        this.preferences = preferences;
    }

    /** Adds the score of one node; {@link #NONE} if the pod does not fit. */
    public void add(double score) {
        if (score != NONE) {
            highest = Math.max(highest, score);
            lowest = Math.min(lowest, score);
        }
    }

    /**
     * The priority of a node, once all scores are added: {@value #BEST} for the winner, 0 to 9 for the others, linearly
     * from the lowest to the highest score. So the policy decides unless kube-scheduler's own plugins differ clearly. For a
     * pod with node preferences the range is 0 to 2: the preferences decide, and the policy breaks ties. A node that the pod
     * does not fit on gets 0.
     *
     * @param score as it was added
     */
    public int of(double score, boolean winner) {
        if (score == NONE) {
            return 0;
        }
        double relative = highest > lowest ? (score - lowest) / (highest - lowest) : 1;
        int priority = winner ? BEST : (int) Math.round(BEST_OF_THE_OTHERS * relative);
        return preferences ? priority / WITH_PREFERENCES : priority;
    }
}
