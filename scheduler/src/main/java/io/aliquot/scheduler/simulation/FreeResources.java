package io.aliquot.scheduler.simulation;

import io.aliquot.scheduler.placement.FreeCapacity;
import org.jspecify.annotations.Nullable;

/**
 * Free capacity of a node. Immutable; two are equal if no pod can tell one node from the other. GPUs are numbered from
 * the fullest on; their free capacity is in thousandths of a GPU: of memory or of cores, whichever is less.
 */
public final class FreeResources {
    /** A whole GPU, in thousandths. */
    public static final int WHOLE = FreeCapacity.WHOLE;

    private final FreeCapacity free;

    FreeResources(FreeCapacity free) {
        this.free = free;
    }

    /** The node without pods. */
    public FreeResources empty() {
        return new FreeResources(FreeCapacity.of(free.shape()));
    }

    public int cpuMillis() {
        return free.cpuMillis();
    }

    public int memoryMiB() {
        return free.memoryMiB();
    }

    public int gpus() {
        return free.gpus();
    }

    /** Free capacity of all GPUs. */
    public int freeGpu() {
        return free.free();
    }

    /** Free capacity of one GPU. */
    public int freeGpu(int gpu) {
        return free.part(gpu);
    }

    /** Whether a demand fits. */
    public boolean fits(PodDemand demand) {
        return free.fits(demand.vector);
    }

    /** Whether a demand accepts the model of the node's GPUs. */
    public boolean isOfModelFor(PodDemand demand) {
        return demand.vector.takes(free.shape());
    }

    /** Whether a GPU holds one of the demand's vGPUs. */
    public boolean holds(int gpu, PodDemand demand) {
        return free.holds(gpu, demand.vector);
    }

    /** GPU capacity that a demand takes on this node, in thousandths. */
    public int takenBy(PodDemand demand) {
        return free.shape().takenBy(demand.vector);
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof FreeResources node && free.equals(node.free);
    }

    @Override
    public int hashCode() {
        return free.hashCode();
    }

    @Override
    public String toString() {
        return free.toString();
    }
}
