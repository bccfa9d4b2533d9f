package io.aliquot.scheduler.placement;

import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What is left of a node. Immutable, but for drafts; two are equal if no pod could tell one node from the other, whichever
 * GPU of either is the fuller one.
 */
public final class FreeCapacity {
    /** What a GPU is counted as in worth: thousandths. */
    public static final int WHOLE = 1000;

    /** Cores of GPUs that are shared by memory alone: more than anybody asks for. */
    static final int UNCOUNTED = 1_000_000;

    /**
     * What a node has when nothing runs on it.
     *
     * @param gpuMiB of each GPU
     * @param gpuCores of each GPU, in percent; 0 if no pod requests any
     * @param model number of its GPUs' model, 0 to 63
     */
    public record Shape(int cpuMillis, int memoryMiB, int gpus, int gpuMiB, int gpuCores, int model) {
        public Shape {
            if (cpuMillis < 0 || memoryMiB < 0 || gpus < 0 || gpuMiB < 1 || gpuCores < 0 || model < 0 || model > 63) {
                throw new IllegalArgumentException("no node has so little");
            }
        }

        /** What one GPU's part is of it, in thousandths: of memory or of cores, whichever is more. */
        public int part(int ofMiB, int ofCores) {
            int memory = (int) ((long) ofMiB * WHOLE / gpuMiB);
            return gpuCores == 0 ? memory : Math.max(memory, ofCores * WHOLE / gpuCores);
        }
    }

    private final Shape shape;
    private int cpuMillis;
    private int memoryMiB;

    /** Memory and, in the lower half, cores left of each GPU, ascending. */
    private final long[] left;

    private int free;
    private int hash;

    private FreeCapacity(Shape shape, int cpuMillis, int memoryMiB, long[] left) {
        this(shape, left);
        reset(cpuMillis, memoryMiB);
    }

    /** To be drawn. */
    private FreeCapacity(Shape shape, long[] left) {
        this.shape = shape;
        this.left = left;
    }

    /** With the GPUs as they are. */
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

    /** A node's when nothing runs on it. */
    public static FreeCapacity of(Shape shape) {
        long[] left = new long[shape.gpus()];
        Arrays.fill(left, pack(shape.gpuMiB(), shape.gpuCores()));
        return new FreeCapacity(shape, shape.cpuMillis(), shape.memoryMiB(), left);
    }

    /** A node's as it is. */
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

    /** What is left of a node's GPU for any pod that might come, once so much more is taken; for {@link #with}. */
    static long left(Shape shape, GpuFreeCapacity gpu, long memoryMiB, int cores, int slots, boolean exclusive) {
        if (!gpu.usableWith(slots, exclusive)) {
            return 0;
        }
        int leftMiB = counted(gpu.freeMiB - memoryMiB);
        // Cores that are not counted are there as long as there is memory.
        return pack(
                leftMiB, shape.gpuCores() == UNCOUNTED && leftMiB > 0 ? UNCOUNTED : Math.max(0, gpu.freeCores - cores));
    }

    /** Not less than 0, and not more than an int holds. */
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

    /** Memory left of a GPU; they are counted from the fullest on. */
    public int gpuMiB(int gpu) {
        return (int) (left[gpu] >> Integer.SIZE);
    }

    /** Cores left of a GPU. */
    public int gpuCores(int gpu) {
        return (int) left[gpu];
    }

    /** GPU left of the whole node, in thousandths: of each the memory or the cores, whichever is less. */
    public int free() {
        return free;
    }

    /** What is left of a GPU, in thousandths: of memory or of cores, whichever is less. */
    public int part(int gpu) {
        int memory = (int) ((long) gpuMiB(gpu) * WHOLE / shape.gpuMiB());
        return shape.gpuCores() == 0 ? memory : Math.min(memory, gpuCores(gpu) * WHOLE / shape.gpuCores());
    }

    /** Whether two GPUs have as much left. */
    public boolean alike(int gpu, int other) {
        return left[gpu] == left[other];
    }

    /** Whether a GPU holds one of a demand's parts. */
    public boolean holds(int gpu, DemandVector demand) {
        return demand.whole()
                ? gpuMiB(gpu) == shape.gpuMiB() && gpuCores(gpu) == shape.gpuCores()
                : gpuMiB(gpu) >= demand.gpuMiB() && gpuCores(gpu) >= demand.gpuCores();
    }

    /** Whether a demand fits. */
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

    /** How many pods like this would fit beside each other, as far as each resource by itself goes. */
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

    /** GPU that a demand takes here, in thousandths. */
    public int takenBy(DemandVector demand) {
        return demand.gpus() * (demand.whole() ? WHOLE : shape.part(demand.gpuMiB(), demand.gpuCores()));
    }

    /**
     * Once a GPU has less left, and so has the host.
     *
     * @param before of the GPU, as {@link #left(Shape, GpuFreeCapacity, long, int, int, boolean)} has it
     * @param after the same
     */
    FreeCapacity with(long before, long after, HostResources host) {
        FreeCapacity room = scratch();
        with(before, after, host, room);
        return room;
    }

    /** A room of the same shape, to be drawn over again and again by one who looks rooms up. */
    FreeCapacity scratch() {
        return new FreeCapacity(shape, new long[left.length]);
    }

    /** The same into a draft of this room's shape, which is another room from now on. */
    void with(long before, long after, HostResources host, FreeCapacity draft) {
        System.arraycopy(left, 0, draft.left, 0, left.length);
        draft.left[Arrays.binarySearch(left, before)] = after;
        Arrays.sort(draft.left);
        draft.reset(counted(host.cpuMillis()), mebibytes(host.memoryBytes()));
    }

    /** Whether it has as many GPUs of the same size as another. */
    boolean isShapedLike(FreeCapacity other) {
        return left.length == other.left.length && shape.equals(other.shape);
    }

    /**
     * With a demand on it.
     *
     * @param gpu the first of its GPUs; the others are the fullest behind it that hold it
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
