package io.aliquot.scheduler.placement;

import io.aliquot.api.Vgpus;
import java.util.Map;

/** What a node can give a pod. */
public sealed interface GpuSelection {
    /** What a node can give a pod, without saying which GPUs. */
    sealed interface Glance {}

    /**
     * It fits.
     *
     * @param fullness of the node's GPUs afterwards, 0 to 1
     */
    record Fits(double fullness) implements Glance {}

    /**
     * It fits.
     *
     * @param containers what each gets, by its name
     * @param perGpu what the pod then holds of each GPU, by UUID
     * @param fullness of the node's GPUs afterwards, 0 to 1
     */
    record Selected(Map<String, Vgpus> containers, Map<String, GpuAmount> perGpu, double fullness)
            implements GpuSelection {
        public Selected {
            containers = Map.copyOf(containers);
            perGpu = Map.copyOf(perGpu);
        }
    }

    /**
     * It doesn't fit.
     *
     * @param reason a few words that are the same at every try; kube-scheduler puts a count of nodes before them
     * @param hopeless whether it wouldn't fit on the node's empty GPUs either
     */
    record Refused(String reason, boolean hopeless) implements GpuSelection, Glance {}
}
