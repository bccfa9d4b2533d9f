package io.aliquot.scheduler.placement;

import io.aliquot.scheduler.placement.Feasibility.Fits;
import java.util.List;

/**
 * Answers whether a pod fits, for many hypothetical states of nodes and with a bound on the work of all answers together:
 * once the attempts are used up, a pod with several containers fits only if first-fit decreasing places it. A yes is
 * always right. Not thread-safe.
 */
public final class FitCheck {
    private final PodGpuRequest pod;
    private int attempts;

    /**
     * Prepares the check.
     *
     * @param attempts to assign one GPU, for all answers together; they matter to pods with several containers only
     */
    public FitCheck(PodGpuRequest pod, int attempts) {
        this.pod = pod;
        this.attempts = attempts;
    }

    /**
     * Whether the pod fits.
     *
     * @param gpus every GPU of the node, in the order of its inventory
     */
    public boolean fits(List<GpuInfo> gpus) {
        // Feasibility does not depend on the placement policy, so any policy gives the answer.
        PlacementPolicy policy = PlacementPolicy.BINPACK;
        if (pod.requestsOneVgpu()) {
            return GpuSelector.feasible(pod, gpus, policy) instanceof Fits;
        }
        var selector = new PodGpuSelector(
                pod, gpus, policy, pod.containers().size() != 1, Math.min(attempts, PodGpuSelector.BUDGET));
        boolean fits = selector.quickCheck() instanceof Fits;
        attempts -= selector.attempts();
        return fits;
    }
}
