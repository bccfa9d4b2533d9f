package io.aliquot.scheduler.placement;

import io.aliquot.api.Vgpus;
import java.util.Map;

/** Which GPUs of a node a pod gets, or why it gets none. */
public sealed interface GpuSelection {
    /** Whether a node fits a pod, without the GPUs that the pod would get. */
    sealed interface QuickCheck {}

    /**
     * The node fits the pod.
     *
     * @param fullness mean fullness of the node's GPUs with the pod, 0 to 1
     */
    record Fits(double fullness) implements QuickCheck {}

    /**
     * The node fits the pod, on these GPUs.
     *
     * @param containers the vGPUs of each container, by the container's name
     * @param perGpu the amount that the pod then holds of each GPU, by UUID; other GPUs of the node are absent
     * @param fullness mean fullness of the node's GPUs with the pod, 0 to 1
     */
    record Selected(Map<String, Vgpus> containers, Map<String, GpuAmount> perGpu, double fullness)
            implements GpuSelection {
        public Selected {
            containers = Map.copyOf(containers);
            perGpu = Map.copyOf(perGpu);
        }
    }

    /**
     * The node does not fit the pod.
     *
     * @param reason a short phrase that is identical on every node and at every attempt, because kube-scheduler counts
     *     nodes by it
     * @param unresolvable whether the pod would not fit on the node's empty GPUs either, so that preemption cannot help
     */
    record Refused(String reason, boolean unresolvable) implements GpuSelection, QuickCheck {}
}
