package io.aliquot.simulator;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.scoring.ScoringPolicy;

/**
 * Prefers the node with the least CPU and GPU left after the placement, with equal weights, and on it the GPU with the
 * least left.
 */
final class BestFit implements ScoringPolicy.Model {
    /** CPU and GPU of the largest nodes of the openb trace. */
    private static final double MAX_CPU_MILLIS = 128_000;

    private static final double MAX_GPU = 8_000;

    @Override
    public double score(DemandVector demand, FreeCapacity before, FreeCapacity after) {
        return -(after.cpuMillis() / MAX_CPU_MILLIS + after.free() / MAX_GPU) / 2;
    }
}
