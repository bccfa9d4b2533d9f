package io.aliquot.scheduler.placement;

import io.aliquot.api.names.Gpu;
import io.aliquot.api.names.SharingMode;
import java.util.List;

/**
 * What is allocatable of a GPU: what its node offers of it to pods, allocated or not. Immutable; {@link NodeGpus} creates
 * it.
 */
public final class GpuCapacity {
    final Gpu gpu;
    final SharingMode sharingMode;
    final long memoryMiB;
    final int vgpuMiB;
    final int cores;
    final int slots;
    final boolean schedulable;

    private final boolean cordoned;
    private final int position;
    private final GpuTopology topology;

    /**
     * Creates the capacity of one GPU.
     *
     * @param position of the GPU in the node's inventory and in {@code topology}
     */
    GpuCapacity(
            Gpu gpu,
            SharingMode sharingMode,
            long memoryMiB,
            int cores,
            int slots,
            boolean cordoned,
            int position,
            GpuTopology topology) {
        this.gpu = gpu;
        this.sharingMode = sharingMode;
        this.memoryMiB = memoryMiB;
        this.vgpuMiB = (int) Math.min(memoryMiB, gpu.memoryMiB());
        this.cores = cores;
        this.slots = slots;
        this.schedulable = gpu.healthy() && !cordoned && gpu.heldBy().isEmpty();
        this.cordoned = cordoned;
        this.position = position;
        this.topology = topology;
    }

    public Gpu gpu() {
        return gpu;
    }

    /** How the GPU is shared. */
    public SharingMode sharingMode() {
        return sharingMode;
    }

    /** Memory for all vGPUs of the GPU together, in MiB; above the GPU's memory if the node over-commits memory. */
    public long memoryMiB() {
        return memoryMiB;
    }

    /**
     * Memory for one vGPU at most, in MiB: {@link #memoryMiB()}, but no more than the GPU has. A request for a whole
     * card gets all of it; requests in percent refer to it.
     */
    public int vgpuMiB() {
        return vgpuMiB;
    }

    /** Compute for all vGPUs of the GPU together, in percent of the GPU; above 100 if the node over-commits compute. */
    public int cores() {
        return cores;
    }

    /** The number of vGPUs that the GPU can be split into. */
    public int slots() {
        return slots;
    }

    /** Whether the GPU takes new vGPUs: it is healthy, not cordoned, and no pod holds it through another device plugin. */
    public boolean schedulable() {
        return schedulable;
    }

    /** Whether the cluster's administrator cordoned the GPU, so that it takes no new vGPUs. */
    public boolean cordoned() {
        return cordoned;
    }

    /** The same GPU, as if it were healthy, not cordoned and not held by others. */
    public GpuCapacity asSchedulable() {
        return new GpuCapacity(
                gpu.withHealth(Gpu.HEALTHY).withHolders(List.of()),
                sharingMode,
                memoryMiB,
                cores,
                slots,
                false,
                position,
                topology);
    }

    /** The {@link GpuTopology} score of the link to another GPU of the node; 0 if unknown. */
    int linkScoreTo(GpuCapacity other) {
        return topology.linkScore(position, other.position);
    }

    /** Whether links come before the placement policy on the GPU's node. */
    boolean linksFirst() {
        return topology.first();
    }

    /** Whether any link between GPUs of the node is known. */
    boolean linksKnown() {
        return topology.known();
    }
}
