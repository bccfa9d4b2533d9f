package io.aliquot.scheduler.placement;

/** Whether a pod fits on a node. */
public sealed interface Feasibility {
    /**
     * The pod fits.
     *
     * @param fullness mean fullness of the node's GPUs with the pod, 0 to 1; an answer of the ledger includes CPU and memory
     */
    record Fits(double fullness) implements Feasibility {}

    /**
     * The pod does not fit.
     *
     * @param reason a short phrase that is identical on every node and at every attempt, because kube-scheduler counts
     *     nodes by it
     * @param unresolvable whether the pod would not fit on the node's empty GPUs either, so that preemption cannot help
     */
    record Refused(String reason, boolean unresolvable) implements Feasibility, GpuSelection {}
}
