package io.aliquot.scheduler.simulation;

/** Scores the candidate placements of a pod, in place of the policy {@code fragmentation}. */
@FunctionalInterface
public interface Scorer {
    /**
     * The score of one placement; the highest wins.
     *
     * @param before the node's free capacity
     * @param after its free capacity once the pod is placed
     */
    double score(PodDemand demand, FreeResources before, FreeResources after);
}
