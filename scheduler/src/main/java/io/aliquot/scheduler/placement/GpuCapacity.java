package io.aliquot.scheduler.placement;

import io.aliquot.api.Gpu;
import io.aliquot.api.SharingMode;

/** A GPU as its node offers it. Immutable; made by {@link NodeGpus}. */
public final class GpuCapacity {
    final Gpu gpu;
    final SharingMode share;
    final long memoryMiB;
    final int vgpuMiB;
    final int cores;
    final int slots;
    final boolean open;

    private final boolean cordoned;
    private final int place;
    private final GpuTopology wiring;

    GpuCapacity(
            Gpu gpu,
            SharingMode share,
            long memoryMiB,
            int cores,
            int slots,
            boolean cordoned,
            int place,
            GpuTopology wiring) {
        this.gpu = gpu;
        this.share = share;
        this.memoryMiB = memoryMiB;
        this.vgpuMiB = (int) Math.min(memoryMiB, gpu.memoryMiB());
        this.cores = cores;
        this.slots = slots;
        this.open = gpu.healthy() && !cordoned;
        this.cordoned = cordoned;
        this.place = place;
        this.wiring = wiring;
    }

    public Gpu gpu() {
        return gpu;
    }

    /** What the GPUs of its node are shared by. */
    public SharingMode share() {
        return share;
    }

    /** Memory for all vGPUs on it together. */
    public long memoryMiB() {
        return memoryMiB;
    }

    /**
     * Memory for one vGPU at most: of the GPU's own as much as is sold. What whole cards get, and percentages are of it.
     */
    public int vgpuMiB() {
        return vgpuMiB;
    }

    /** Compute for all vGPUs on it together, in percent of the GPU. */
    public int cores() {
        return cores;
    }

    /** vGPUs at most. */
    public int slots() {
        return slots;
    }

    /** Whether it takes new shares: it is healthy, and not cordoned. */
    public boolean open() {
        return open;
    }

    /** Whether its admin keeps new shares off it. */
    public boolean cordoned() {
        return cordoned;
    }

    /** The same, were it healthy and not cordoned. */
    public GpuCapacity opened() {
        var healthy = new Gpu(
                gpu.uuid(),
                gpu.index(),
                gpu.model(),
                gpu.memoryMiB(),
                gpu.contextMiB(),
                gpu.numa(),
                true,
                gpu.mode(),
                gpu.links());
        return new GpuCapacity(healthy, share, memoryMiB, cores, slots, false, place, wiring);
    }

    /** How well it reaches another card of its node, see {@link GpuTopology}. */
    int linkScoreTo(GpuCapacity other) {
        return wiring.linkScore(place, other.place);
    }

    /** Whether some card of its node is known to reach another one. */
    boolean topology() {
        return wiring.known();
    }
}
