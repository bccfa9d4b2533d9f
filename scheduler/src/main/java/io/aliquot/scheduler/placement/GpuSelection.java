package io.aliquot.scheduler.placement;

import io.aliquot.api.pods.Vgpus;
import java.util.Map;

/** Which GPUs of a node a pod gets, or why it gets none. */
public sealed interface GpuSelection permits GpuSelection.Selected, Feasibility.Refused {
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
}
