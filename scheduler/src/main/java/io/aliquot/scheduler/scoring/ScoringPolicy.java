package io.aliquot.scheduler.scoring;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import java.util.List;
import java.util.function.Supplier;

/** Learns which pods are requested, and scores candidate placements by it. Used by one thread at a time. */
public interface ScoringPolicy {
    /**
     * What a policy knows at one time. Thread-safe; equal calls give equal results.
     */
    interface Model {
        /**
         * The score of a candidate placement; the highest wins.
         *
         * @param before the node's free capacity
         * @param after its free capacity with the pod
         */
        double score(DemandVector demand, FreeCapacity before, FreeCapacity after);

        /** The terms of a score; may be empty. */
        default List<ScoreTerm> terms(DemandVector demand, FreeCapacity before, FreeCapacity after) {
            return List.of();
        }
    }

    /**
     * Reports pods that are to be placed, each of them once, whether or not it fits.
     *
     * @param pods their demands, oldest first
     * @param nodes free capacities of all nodes that take pods
     * @return the model from now on; another object if scores have changed
     */
    Model learn(List<DemandVector> pods, Supplier<List<FreeCapacity>> nodes);
}
