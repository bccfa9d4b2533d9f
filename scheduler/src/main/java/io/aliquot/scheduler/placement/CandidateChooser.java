package io.aliquot.scheduler.placement;

/** Chooses one of a pod's candidate placements on a node. Thread-safe. */
@FunctionalInterface
public interface CandidateChooser {
    /**
     * Called with the node's lock held.
     *
     * @return the GPU of the chosen candidate, by its index among the node's GPUs
     */
    int choose(CandidatePlacements candidates);
}
