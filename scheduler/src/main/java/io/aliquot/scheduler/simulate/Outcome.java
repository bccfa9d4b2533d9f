package io.aliquot.scheduler.simulate;

import java.util.List;
import java.util.Map;

/**
 * What came of one replay. All shares are percent of the cluster's GPU.
 *
 * @param samples one each {@link Experiment#step}, from 0 on
 * @param allocated after the last pod; where pods end, the mean over the time that is measured
 * @param stranded the same
 * @param failed pods that fitted nowhere, by the reason
 * @param pods that came
 * @param gpus how full each GPU is at the end, by node
 * @param seconds that it took
 */
record Outcome(
        List<Sample> samples,
        double allocated,
        double stranded,
        Map<Failure, Integer> failed,
        int pods,
        List<List<Double>> gpus,
        double seconds) {
    /**
     * How it stands at a point of the replay.
     *
     * @param allocated to pods
     * @param stranded free, but of no use to the workload's typical pods where it is
     */
    record Sample(double allocated, double stranded) {}
}
