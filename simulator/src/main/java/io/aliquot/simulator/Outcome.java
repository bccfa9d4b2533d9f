package io.aliquot.simulator;

import io.aliquot.scheduler.placement.GpuAmount;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * What came of one replay. All shares are percent of the cluster's GPU.
 *
 * @param samples one each {@link Experiment#step}, from 0 on
 * @param allocated after the last pod; where pods end, the mean over the time that is measured
 * @param placed the same of what those pods asked for that have their places
 * @param stranded the same of what is free
 * @param failed pods that fitted nowhere, by the reason
 * @param pods that came
 * @param gpus how full each GPU is at the end, by node
 * @param held of each GPU at the end, by node and in the order of its inventory
 * @param seconds that it took
 * @param decisions how long it took to place a pod, or to find that it fits nowhere
 */
record Outcome(
        List<Sample> samples,
        double allocated,
        double placed,
        double stranded,
        Map<UnschedulableReason, Integer> failed,
        int pods,
        List<List<Double>> gpus,
        List<List<GpuAmount>> held,
        double seconds,
        Decisions decisions) {
    /**
     * How it stands at a point of the replay.
     *
     * @param allocated to pods, each part measured by the card that it is on
     * @param placed the same pods' parts, measured as demand is, by the mean card: the same wherever they are
     * @param stranded free, but of no use to the workload's typical pods where it is
     */
    record Sample(double allocated, double placed, double stranded) {}

    /** CPU time in milliseconds, the median and what one in a hundred exceeds. */
    record Decisions(double p50, double p99) {
        static Decisions of(long[] nanos) {
            long[] sorted = nanos.clone();
            Arrays.sort(sorted);
            return new Decisions(at(sorted, 50), at(sorted, 99));
        }

        private static double at(long[] sorted, int percent) {
            return sorted.length == 0 ? 0 : sorted[(int) ((sorted.length - 1) * (percent / 100.0))] / 1e6;
        }
    }
}
