package io.aliquot.scheduler.scoring;

/**
 * Turns how full nodes would be into the 0 to 10 that kube-scheduler wants of an extender.
 */
public final class FullnessScores {
    public static final int BEST = 10;
    public static final double NONE = Double.NEGATIVE_INFINITY;
    private static final int BEST_OF_THE_OTHERS = 9;
    private static final int WITH_PREFERENCES = 5;

    private final boolean preferences;
    private double least = Double.POSITIVE_INFINITY;
    private double most = Double.NEGATIVE_INFINITY;

    /** {@code preferences}: whether the pod has some of its own. */
    public FullnessScores(boolean preferences) {
        this.preferences = preferences;
    }

    /** One of the nodes is liked so much; {@link #NONE} where the pod can't have it. */
    public void add(double liking) {
        if (liking != NONE) {
            most = Math.max(most, liking);
            least = Math.min(least, liking);
        }
    }

    /**
     * Once all are known: {@value #BEST} for the winner, 0 to 9 for the others, linearly from the least liked to the
     * most liked, so that the policy decides unless something else speaks clearly. For a pod with preferences of its own
     * 0 to 2: they decide, and the policy breaks ties. 0 for a node that the pod can't have.
     *
     * @param liking as it was added
     */
    public int of(double liking, boolean winner) {
        if (liking == NONE) {
            return 0;
        }
        double share = most > least ? (liking - least) / (most - least) : 1;
        int score = winner ? BEST : (int) Math.round(BEST_OF_THE_OTHERS * share);
        return preferences ? score / WITH_PREFERENCES : score;
    }
}
