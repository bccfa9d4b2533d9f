package io.aliquot.scheduler.placement;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.SharingMode;

/**
 * A GPU, what is allocatable and what is allocated of it, and the difference, its free capacity. Immutable. Its values are
 * computed once for each change of the allocated amount, because every pod compares them.
 */
public final class GpuInfo {
    /** The {@link #fullness} of a fully allocated GPU. */
    static final int FULL = 1 << 20;

    final GpuCapacity capacity;
    /** Below 0 if pods hold more than the GPU's capacity, after the capacity was lowered; likewise cores and slots. */
    final long freeMiB;

    final int freeCores;
    final int freeSlots;
    /**
     * 0 for an empty GPU to {@link #FULL}: the mean of the allocated fractions of memory and compute; of memory alone
     * where the node does not share compute. Above {@link #FULL} if pods hold more than the GPU's capacity.
     */
    final int fullness;

    private final GpuAmount allocated;

    /**
     * Subtracts the allocated amount from a capacity.
     *
     * @param allocated to all pods other than the one to place
     */
    public GpuInfo(GpuCapacity capacity, GpuAmount allocated) {
        this.capacity = capacity;
        this.allocated = allocated;
        this.freeMiB = capacity.memoryMiB - allocated.memoryMiB();
        this.freeCores = capacity.cores - allocated.cores();
        this.freeSlots = capacity.slots - allocated.slots();
        this.fullness = fullnessWith(0, 0, false);
    }

    public GpuCapacity capacity() {
        return capacity;
    }

    public Gpu gpu() {
        return capacity.gpu;
    }

    public GpuAmount allocated() {
        return allocated;
    }

    /** The GPU once a pod got this amount too. */
    public GpuInfo with(GpuAmount amount) {
        return new GpuInfo(
                capacity,
                new GpuAmount(
                        allocated.memoryMiB() + amount.memoryMiB(),
                        allocated.cores() + amount.cores(),
                        allocated.slots() + amount.slots(),
                        allocated.exclusive() || amount.exclusive()));
    }

    /**
     * The GPU once a pod has given back this amount. A GPU that is held as a whole card stays so until its last vGPU is
     * given back.
     */
    public GpuInfo without(GpuAmount amount) {
        int slots = allocated.slots() - amount.slots();
        return new GpuInfo(
                capacity,
                new GpuAmount(
                        allocated.memoryMiB() - amount.memoryMiB(),
                        allocated.cores() - amount.cores(),
                        slots,
                        allocated.exclusive() && slots > 0));
    }

    /** Whether the GPU is schedulable and has this amount free. */
    public boolean holds(long memoryMiB, int cores, int slots, boolean exclusive) {
        return capacity.schedulable
                && memoryMiB <= freeMiB
                && cores <= freeCores
                && slots <= freeSlots
                && respectsExclusivity(exclusive);
    }

    /** Whether the GPU could hold any further vGPU after a pod got this amount. */
    boolean usableWith(int slots, boolean exclusive) {
        return capacity.schedulable && freeSlots > slots && !exclusive && !allocated.exclusive();
    }

    /** Whether no pod holds the GPU as a whole card and, for an exclusive request, no pod holds any of it. */
    boolean respectsExclusivity(boolean exclusive) {
        return !allocated.exclusive() && (!exclusive || allocated.slots() == 0);
    }

    /** The {@link #fullness} after a pod got this amount. */
    int fullnessWith(long memoryMiB, int cores, boolean exclusive) {
        if (exclusive || allocated.exclusive() || !capacity.gpu.hasCapacity()) {
            return FULL;
        }
        long memory = (allocated.memoryMiB() + memoryMiB) * FULL / capacity.memoryMiB;
        if (capacity.sharingMode == SharingMode.MEMORY) {
            return (int) memory;
        }
        long compute = (long) (allocated.cores() + cores) * FULL / capacity.cores;
        return (int) ((memory + compute) / 2);
    }

    @Override
    public String toString() {
        return capacity.gpu.uuid() + " " + allocated;
    }
}
