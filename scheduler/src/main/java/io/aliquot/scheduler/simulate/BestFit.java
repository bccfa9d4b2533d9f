package io.aliquot.scheduler.simulate;

/** The node with the least CPU and GPU left after, each counting half, and on it the GPU with the least left. */
final class BestFit implements Policy {
    /** The trace's largest node has so much. */
    private static final double MOST_CPU_MILLIS = 128_000;

    private static final double MOST_GPU = 8_000;

    @Override
    public double score(Demand demand, NodeState before, NodeState after) {
        return -(after.cpuMillis / MOST_CPU_MILLIS + after.free / MOST_GPU) / 2;
    }
}
