package io.aliquot.scheduler.placement;

import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.pods.Placement;

/**
 * A placement policy: decides which node a pod gets, and which GPUs of that node, among those that fit the pod. Each
 * method is one decision, and the rest of the scheduler asks it. Whether a node or GPU fits does not depend on the policy:
 * {@link GpuSelector} decides that. CONTRIBUTING.md says how to add one.
 */
public enum PlacementPolicy {
    /** The fullest node and GPUs; of equally full GPUs the smallest, so that large GPUs stay empty. */
    BINPACK,
    /** The emptiest node and GPUs. */
    SPREAD,
    /** The node and GPU that cost later pods least. A pod with several vGPUs gets the GPUs that BINPACK selects. */
    FRAGMENTATION;

    public static PlacementPolicy of(Placement name) {
        return switch (name) {
            case BINPACK -> BINPACK;
            case SPREAD -> SPREAD;
            case FRAGMENTATION -> FRAGMENTATION;
        };
    }

    /**
     * Whether a {@link CandidateChooser} and the scoring of nodes score every candidate placement. If not, a node is
     * rated by {@link #rateFullness}, and its GPUs by {@link #rateGpu}.
     */
    public boolean scoresCandidates() {
        return switch (this) {
            case BINPACK, SPREAD -> false;
            case FRAGMENTATION -> true;
        };
    }

    /**
     * Rates a node that fits the pod; the node with the highest rating wins.
     *
     * @param fullness of the node, from 0 for empty to 1; or of a GPU, in any unit
     */
    public double rateFullness(double fullness) {
        return switch (this) {
            case BINPACK, FRAGMENTATION -> fullness;
            case SPREAD -> -fullness;
        };
    }

    /**
     * Rates a GPU that holds a vGPU of the pod; the container gets the GPUs with the highest ratings, unless NUMA domains
     * or links between GPUs come first, see {@link ContainerGpuSelector}.
     *
     * @param fullness of the GPU, from 0 to {@link GpuInfo#FULL}
     */
    long rateGpu(int fullness, GpuCapacity gpu) {
        return switch (this) {
            case BINPACK, FRAGMENTATION -> ((long) fullness << 32) - gpu.size();
            // A share that takes an instance as a whole takes the smallest: what is left over is lost.
            case SPREAD -> ((long) -fullness << 32) - (gpu.sharingMode == SharingMode.MIG ? gpu.size() : 0);
        };
    }

    /** The policy by which GPUs are assigned to a pod's containers if they do not all fit by this one. */
    PlacementPolicy fallback() {
        return switch (this) {
            case BINPACK, FRAGMENTATION -> SPREAD;
            case SPREAD -> BINPACK;
        };
    }
}
