package io.aliquot.simulator;

import io.aliquot.scheduler.placement.GpuAmount;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * The figures of one replay. GPU amounts are percent of the cluster's GPU capacity.
 *
 * @param samples one per {@link Experiment#step}, from 0 on
 * @param allocated after the last pod; where pods end, the mean over the measured time
 * @param placed the same of what the placed pods request
 * @param stranded the same of the stranded capacity
 * @param failed pods that fitted on no node, by the reason
 * @param pods that arrived
 * @param gpus how full each GPU is at the end, by node
 * @param held of each GPU at the end, by node and in the order of its inventory
 * @param seconds that the replay took
 * @param decisions CPU time to place a pod or to find that it fits on no node
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
     * The cluster at one point of the replay.
     *
     * @param allocated to pods, each share measured by the GPU that it is on
     * @param placed the same pods' requests, measured by the mean GPU: independent of where they are
     * @param stranded free, but unusable for the workload's typical pods on its node
     */
    record Sample(double allocated, double placed, double stranded) {}

    /** CPU time in milliseconds: median and 99th percentile. */
    record Decisions(double p50, double p99) {
        static Decisions of(long[] nanos) {
            long[] sorted = nanos.clone();
            Arrays.sort(sorted);
            return new Decisions(percentile(sorted, 50), percentile(sorted, 99));
        }

        private static double percentile(long[] sorted, int percent) {
            return sorted.length == 0 ? 0 : sorted[(int) ((sorted.length - 1) * (percent / 100.0))] / 1e6;
        }
    }
}
