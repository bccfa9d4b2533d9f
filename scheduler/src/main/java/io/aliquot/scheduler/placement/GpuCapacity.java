package io.aliquot.scheduler.placement;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuKind;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What is allocatable of a GPU: what its node offers of it to pods, allocated or not. For MIG placement, which requests a
 * MIG instance admits, and how much of it they get. Immutable; {@link NodeGpus} creates it.
 */
public final class GpuCapacity {
    private static final int ALL_CORES = 100;
    /** More than any scaling allows. */
    private static final int TOO_MANY_CORES = 1_000_000;

    private static final int SLICE_BITS = 6;

    final Gpu gpu;
    final SharingMode sharingMode;
    final long memoryMiB;
    final int vgpuMiB;
    final int cores;
    final int slots;
    final boolean schedulable;
    /** Of an instance, as in names of resources; empty for a card. */
    final String profile;

    private final GpuKind.@Nullable MigInstance instance;
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
        this.instance = gpu.instance().orElse(null);
        this.profile = instance == null ? "" : instance.profileInResources();
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

    /**
     * Whether GPUs of this kind are given to such a request: an instance to those that name its profile, a card as a whole
     * to those that name none, and a part to the others if the GPU is shared.
     */
    public boolean admits(GpuRequest request) {
        if (!request.profile().isEmpty() || request.exclusive()) {
            return request.profile().equals(profile);
        }
        return sharingMode != SharingMode.EXCLUSIVE;
    }

    /** Whether such a request takes all of the GPU: a whole card, or an instance that is not shared. */
    public boolean givesWhole(GpuRequest request) {
        return request.exclusive() || sharingMode == SharingMode.MIG;
    }

    /**
     * Memory that a vGPU of such a request gets, in MiB; more than {@link #vgpuMiB} if the GPU is too small. A percentage is
     * one of the card's memory, also on an instance.
     */
    public int memoryMiB(GpuRequest request) {
        MemoryRequest memory = request.memory();
        int needed = memory.on(
                memory instanceof MemoryRequest.Percentage && instance != null ? instance.cardMiB() : vgpuMiB);
        return sharingMode == SharingMode.MIG ? Math.max(needed, vgpuMiB) : needed;
    }

    /**
     * Cores that a vGPU of such a request gets, in percent of the GPU; 0 where compute is not shared; more than {@link
     * #cores} if the GPU has too few. On an instance the request is in percent of its card.
     */
    public int cores(GpuRequest request) {
        if (sharingMode == SharingMode.MEMORY || instance == null) {
            return sharingMode == SharingMode.MEMORY ? 0 : request.cores();
        }
        int needed = instance.coresOf(request.cores());
        if (needed > ALL_CORES) {
            return TOO_MANY_CORES;
        }
        return sharingMode == SharingMode.MIG ? 0 : needed;
    }

    /** Orders GPUs by size: memory first, then slices of compute. */
    long size() {
        return ((long) gpu.memoryMiB() << SLICE_BITS) + (instance == null ? 0 : instance.slices());
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

    /** The same GPU, as if it were healthy, not cordoned and not held by others; one without capacity stays unhealthy. */
    public GpuCapacity asSchedulable() {
        return new GpuCapacity(
                (gpu.hasCapacity() ? gpu.withHealth(Gpu.HEALTHY) : gpu).withHolders(List.of()),
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
