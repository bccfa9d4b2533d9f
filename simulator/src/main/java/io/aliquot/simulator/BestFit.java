package io.aliquot.simulator;

import io.aliquot.scheduler.simulation.FreeResources;
import io.aliquot.scheduler.simulation.PodDemand;
import io.aliquot.scheduler.simulation.Scorer;

/**
 * Prefers the node with the least CPU and GPU left after the placement, with equal weights, and on it the GPU with the
 * least left.
 */
final class BestFit implements Scorer {
    /** CPU and GPU of the largest nodes of the openb trace. */
    private static final double MAX_CPU_MILLIS = 128_000;

    private static final double MAX_GPU = 8_000;

    @Override
    public double score(PodDemand demand, FreeResources before, FreeResources after) {
        return -(after.cpuMillis() / MAX_CPU_MILLIS + after.freeGpu() / MAX_GPU) / 2;
    }
}
