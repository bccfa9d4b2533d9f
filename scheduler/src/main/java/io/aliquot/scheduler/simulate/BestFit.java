package io.aliquot.scheduler.simulate;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.scoring.ScoringPolicy;

/** The node with the least CPU and GPU left after, each counting half, and on it the GPU with the least left. */
final class BestFit implements ScoringPolicy<Double> {
    /** The openb trace's largest nodes have so much. */
    private static final double MOST_CPU_MILLIS = 128_000;

    private static final double MOST_GPU = 8_000;

    @Override
    public Double evaluate(DemandVector demand, FreeCapacity before, FreeCapacity after) {
        return -(after.cpuMillis() / MOST_CPU_MILLIS + after.free() / MOST_GPU) / 2;
    }

    @Override
    public double score(Double place) {
        return place;
    }
}
