package io.aliquot.scheduler.simulate;

import io.aliquot.scheduler.placement.Demand;
import io.aliquot.scheduler.placement.Judge;
import io.aliquot.scheduler.placement.Room;

/** The node with the least CPU and GPU left after, each counting half, and on it the GPU with the least left. */
final class BestFit implements Judge<Double> {
    /** The openb trace's largest nodes have so much. */
    private static final double MOST_CPU_MILLIS = 128_000;

    private static final double MOST_GPU = 8_000;

    @Override
    public Double weigh(Demand demand, Room before, Room after) {
        return -(after.cpuMillis() / MOST_CPU_MILLIS + after.free() / MOST_GPU) / 2;
    }

    @Override
    public double score(Double place) {
        return place;
    }
}
