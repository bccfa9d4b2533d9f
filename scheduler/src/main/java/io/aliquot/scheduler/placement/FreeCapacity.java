package io.aliquot.scheduler.placement;

import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Free capacity of a node. Immutable, except for the reusable buffers of {@link #scratch}. Two objects are equal if no
 * pod can distinguish their nodes; the order of the GPUs does not matter.
 */
public final class FreeCapacity {
    /** One whole GPU, in the unit of {@link #free}: thousandths of a GPU. */
    public static final int WHOLE = 1000;

    /** Cores of a GPU that is shared by memory only: more than any pod requests. */
    static final int UNCOUNTED = 1_000_000;

    /**
     * Capacity of an empty node.
     *
     * @param gpuMiB memory of each GPU
     * @param gpuCores cores of each GPU, in percent; 0 if no pod requests cores
     * @param model number of the GPU model, 0 to 63
     */
    public record Shape(int cpuMillis, int memoryMiB, int gpus, int gpuMiB, int gpuCores, int model) {
        public Shape {
            if (cpuMillis < 0 || memoryMiB < 0 || gpus < 0 || gpuMiB < 1 || gpuCores < 0 || model < 0 || model > 63) {
                throw new IllegalArgumentException("negative capacity, no GPU memory, or a model not in 0 to 63");
            }
        }

        /**
         * The fraction of one GPU that an allocation takes, in thousandths: of memory or of cores, whichever is more.
         */
        public int part(int ofMiB, int ofCores) {
            int memory = (int) ((long) ofMiB * WHOLE / gpuMiB);
            return gpuCores == 0 ? memory : Math.max(memory, ofCores * WHOLE / gpuCores);
        }
    }

    private final Shape shape;
    private int cpuMillis;
    private int memoryMiB;

    /** Free memory (upper 32 bits) and free cores (lower 32 bits) of each GPU, ascending. */
    private final long[] left;

    private int free;
    private int hash;

    private FreeCapacity(Shape shape, int cpuMillis, int memoryMiB, long[] left) {
        this(shape, left);
        reset(cpuMillis, memoryMiB);
    }

    /** A buffer; {@link #reset} completes it. */
    private FreeCapacity(Shape shape, long[] left) {
        this.shape = shape;
        this.left = left;
    }

    /** Sets the host resources and recomputes the values that are derived from the GPUs in {@code left}. */
    private void reset(int cpuMillis, int memoryMiB) {
        this.cpuMillis = cpuMillis;
        this.memoryMiB = memoryMiB;
        int sum = 0;
        for (int gpu = 0; gpu < left.length; gpu++) {
            sum += part(gpu);
        }
        free = sum;
        hash = ((shape.hashCode() * 31 + cpuMillis) * 31 + memoryMiB) * 31 + Arrays.hashCode(left);
    }

    /** Free capacity of an empty node. */
    public static FreeCapacity of(Shape shape) {
        long[] left = new long[shape.gpus()];
        Arrays.fill(left, pack(shape.gpuMiB(), shape.gpuCores()));
        return new FreeCapacity(shape, shape.cpuMillis(), shape.memoryMiB(), left);
    }

    /** Free capacity of a node from the free capacity of its host and of each of its GPUs. */
    public static FreeCapacity of(Shape shape, HostResources left, List<GpuFreeCapacity> gpus) {
        long[] each = new long[gpus.size()];
        for (int gpu = 0; gpu < each.length; gpu++) {
            each[gpu] = left(shape, gpus.get(gpu), 0, 0, 0, false);
        }
        return of(shape, left, each);
    }

    private static FreeCapacity of(Shape shape, HostResources left, long[] each) {
        Arrays.sort(each);
        return new FreeCapacity(shape, counted(left.cpuMillis()), mebibytes(left.memoryBytes()), each);
    }

    /** Packed free capacity of a GPU for any later pod once the given amounts are allocated; for {@link #with}. */
    static long left(Shape shape, GpuFreeCapacity gpu, long memoryMiB, int cores, int slots, boolean exclusive) {
        if (!gpu.usableWith(slots, exclusive)) {
            return 0;
        }
        int leftMiB = counted(gpu.freeMiB - memoryMiB);
        // Where cores are not counted, all are free while memory is free.
        return pack(
                leftMiB, shape.gpuCores() == UNCOUNTED && leftMiB > 0 ? UNCOUNTED : Math.max(0, gpu.freeCores - cores));
    }

    /** The amount as an int, limited to the range from 0 to {@link Integer#MAX_VALUE}. */
    static int counted(long amount) {
        return (int) Math.max(0, Math.min(Integer.MAX_VALUE, amount));
    }

    static int mebibytes(long bytes) {
        return counted(bytes >> 20);
    }

    private static long pack(int miB, int cores) {
        return (long) miB << Integer.SIZE | cores;
    }

    public Shape shape() {
        return shape;
    }

    public int cpuMillis() {
        return cpuMillis;
    }

    public int memoryMiB() {
        return memoryMiB;
    }

    public int gpus() {
        return left.length;
    }

    /** Free memory of a GPU; GPUs are indexed with the fullest first. */
    public int gpuMiB(int gpu) {
        return (int) (left[gpu] >> Integer.SIZE);
    }

    /** Free cores of a GPU. */
    public int gpuCores(int gpu) {
        return (int) left[gpu];
    }

    /** Free GPU capacity of the node in thousandths of a GPU: the sum of {@link #part} over its GPUs. */
    public int free() {
        return free;
    }

    /** Free fraction of a GPU, in thousandths: of memory or of cores, whichever is less. */
    public int part(int gpu) {
        int memory = (int) ((long) gpuMiB(gpu) * WHOLE / shape.gpuMiB());
        return shape.gpuCores() == 0 ? memory : Math.min(memory, gpuCores(gpu) * WHOLE / shape.gpuCores());
    }

    /** Whether two GPUs have the same free capacity. */
    public boolean alike(int gpu, int other) {
        return left[gpu] == left[other];
    }

    /** Whether a GPU holds the part of a demand that goes to one GPU. */
    public boolean holds(int gpu, DemandVector demand) {
        return demand.whole()
                ? gpuMiB(gpu) == shape.gpuMiB() && gpuCores(gpu) == shape.gpuCores()
                : gpuMiB(gpu) >= demand.gpuMiB() && gpuCores(gpu) >= demand.gpuCores();
    }

    /** Whether the node holds a demand. */
    public boolean fits(DemandVector demand) {
        return demand.cpuMillis() <= cpuMillis
                && demand.memoryMiB() <= memoryMiB
                && (demand.gpus() == 0 || (demand.takes(shape) && holding(demand) >= demand.gpus()));
    }

    private int holding(DemandVector demand) {
        int count = 0;
        for (int gpu = 0; gpu < left.length; gpu++) {
            count += holds(gpu, demand) ? 1 : 0;
        }
        return count;
    }

    /** How many pods with this demand fit at once, with each resource checked independently of the others. */
    public int slots(DemandVector demand) {
        if (!fits(demand)) {
            return 0;
        }
        int parts = 0;
        int here = 0;
        for (int gpu = 0; gpu < left.length; gpu++) {
            if (gpu == 0 || !alike(gpu, gpu - 1)) {
                here = holds(gpu, demand) ? parts(gpu, demand) : 0;
            }
            parts += here;
        }
        int slots = parts / demand.gpus();
        slots = demand.cpuMillis() > 0 ? Math.min(slots, cpuMillis / demand.cpuMillis()) : slots;
        return demand.memoryMiB() > 0 ? Math.min(slots, memoryMiB / demand.memoryMiB()) : slots;
    }

    private int parts(int gpu, DemandVector demand) {
        if (demand.whole()) {
            return 1;
        }
        int parts = demand.gpuMiB() > 0 ? gpuMiB(gpu) / demand.gpuMiB() : Integer.MAX_VALUE;
        return demand.gpuCores() > 0 ? Math.min(parts, gpuCores(gpu) / demand.gpuCores()) : parts;
    }

    /** GPU capacity that a demand takes on this node, in thousandths of a GPU. */
    public int takenBy(DemandVector demand) {
        return demand.gpus() * (demand.whole() ? WHOLE : shape.part(demand.gpuMiB(), demand.gpuCores()));
    }

    /**
     * Free capacity after an allocation on one GPU and on the host.
     *
     * @param before free capacity of the GPU, packed by {@link #left(Shape, GpuFreeCapacity, long, int, int, boolean)}
     * @param after its free capacity with the allocation, packed in the same way
     * @param host free host resources with the allocation
     */
    FreeCapacity with(long before, long after, HostResources host) {
        FreeCapacity room = scratch();
        with(before, after, host, room);
        return room;
    }

    /** A reusable buffer of the same shape, for a caller that looks up many free capacities. */
    FreeCapacity scratch() {
        return new FreeCapacity(shape, new long[left.length]);
    }

    /** Writes the same result into a buffer of this shape, which changes the buffer's value. */
    void with(long before, long after, HostResources host, FreeCapacity draft) {
        System.arraycopy(left, 0, draft.left, 0, left.length);
        draft.left[Arrays.binarySearch(left, before)] = after;
        Arrays.sort(draft.left);
        draft.reset(counted(host.cpuMillis()), mebibytes(host.memoryBytes()));
    }

    /** Whether another free capacity has the same shape and the same number of GPUs. */
    boolean isShapedLike(FreeCapacity other) {
        return left.length == other.left.length && shape.equals(other.shape);
    }

    /**
     * Free capacity after a demand is placed.
     *
     * @param gpu the first of the demand's GPUs; the others are the fullest ones after it that hold the demand
     */
    public FreeCapacity with(DemandVector demand, int gpu) {
        long[] after = left.clone();
        int wanted = demand.gpus();
        for (int i = gpu; wanted > 0; i++) {
            if (holds(i, demand)) {
                after[i] = demand.whole() ? 0 : after[i] - pack(demand.gpuMiB(), demand.gpuCores());
                wanted--;
            }
        }
        Arrays.sort(after);
        return new FreeCapacity(shape, cpuMillis - demand.cpuMillis(), memoryMiB - demand.memoryMiB(), after);
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof FreeCapacity room
                && hash == room.hash
                && cpuMillis == room.cpuMillis
                && memoryMiB == room.memoryMiB
                && shape.equals(room.shape)
                && Arrays.equals(left, room.left);
    }

    @Override
    public int hashCode() {
        return hash;
    }

    @Override
    public String toString() {
        var text = new StringBuilder();
        for (int gpu = 0; gpu < left.length; gpu++) {
            text.append(' ').append(gpuMiB(gpu)).append('/').append(gpuCores(gpu));
        }
        return shape + " with " + cpuMillis + " mCPU, " + memoryMiB + " MiB and GPUs" + text + " left";
    }
}
