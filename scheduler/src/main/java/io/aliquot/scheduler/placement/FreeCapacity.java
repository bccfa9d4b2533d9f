package io.aliquot.scheduler.placement;

import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Free capacity of a node: allocatable less requested, for CPU, memory and each GPU. Immutable. Two are equal if no pod can
 * distinguish the nodes; the order of the GPUs does not matter.
 */
public final class FreeCapacity {
    /** A whole GPU, in thousandths. */
    public static final int WHOLE = 1000;

    /** Cores of GPUs that are shared by memory only: more than any request. */
    static final int UNCOUNTED = 1_000_000;

    /**
     * Capacity of a node without pods.
     *
     * @param gpuMiB of each GPU
     * @param gpuCores of each GPU, in percent; 0 if no pod requests any
     * @param model number of its GPUs' model, 0 to 63
     */
    public record Shape(int cpuMillis, int memoryMiB, int gpus, int gpuMiB, int gpuCores, int model) {
        public Shape {
            if (cpuMillis < 0 || memoryMiB < 0 || gpus < 0 || gpuMiB < 1 || gpuCores < 0 || model < 0 || model > 63) {
                throw new IllegalArgumentException(
                        "expected amounts of 0 or more, GPUs with memory and a model from 0 to 63");
            }
        }

        /** The part of one GPU in thousandths, of its memory or of its cores, whichever is more. */
        public int part(int ofMiB, int ofCores) {
            int memory = (int) ((long) ofMiB * WHOLE / gpuMiB);
            return gpuCores == 0 ? memory : Math.max(memory, ofCores * WHOLE / gpuCores);
        }

        /** GPU that a demand takes on such a node, in thousandths. */
        public int takenBy(DemandVector demand) {
            return demand.gpus() * (demand.whole() ? WHOLE : part(demand.gpuMiB(), demand.gpuCores()));
        }
    }

    private final Shape shape;
    private final int cpuMillis;
    private final int memoryMiB;

    /** Free memory and, in the lower half, free cores of each GPU, ascending. */
    private final long[] left;

    private final int free;
    private final int hash;

    private FreeCapacity(Shape shape, int cpuMillis, int memoryMiB, long[] left) {
        this.shape = shape;
        this.cpuMillis = cpuMillis;
        this.memoryMiB = memoryMiB;
        this.left = left;
        int sum = 0;
        for (int gpu = 0; gpu < left.length; gpu++) {
            sum += part(gpu);
        }
        free = sum;
        hash = ((shape.hashCode() * 31 + cpuMillis) * 31 + memoryMiB) * 31 + Arrays.hashCode(left);
    }

    /** A node without pods. */
    public static FreeCapacity of(Shape shape) {
        long[] left = new long[shape.gpus()];
        Arrays.fill(left, pack(shape.gpuMiB(), shape.gpuCores()));
        return new FreeCapacity(shape, shape.cpuMillis(), shape.memoryMiB(), left);
    }

    /** A node with these GPUs. */
    public static FreeCapacity of(Shape shape, HostResources left, List<GpuInfo> gpus) {
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

    /** Free capacity of a GPU for any later pod once these amounts are allocated too; for {@link #with}. */
    static long left(Shape shape, GpuInfo gpu, long memoryMiB, int cores, int slots, boolean exclusive) {
        if (!gpu.usableWith(slots, exclusive)) {
            return 0;
        }
        int leftMiB = counted(gpu.freeMiB - memoryMiB);
        // Cores that are not counted are free while memory is.
        return pack(
                leftMiB, shape.gpuCores() == UNCOUNTED && leftMiB > 0 ? UNCOUNTED : Math.max(0, gpu.freeCores - cores));
    }

    /** The amount as an int from 0 on. */
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

    /** Free memory of a GPU; GPUs are numbered from the fullest on. */
    public int gpuMiB(int gpu) {
        return (int) (left[gpu] >> Integer.SIZE);
    }

    /** Free cores of a GPU, in percent. */
    public int gpuCores(int gpu) {
        return (int) left[gpu];
    }

    /** Free GPU of the node in thousandths: of each GPU's memory or cores, whichever is less. */
    public int free() {
        return free;
    }

    /** Free part of a GPU in thousandths, of its memory or of its cores, whichever is less. */
    public int part(int gpu) {
        int memory = (int) ((long) gpuMiB(gpu) * WHOLE / shape.gpuMiB());
        return shape.gpuCores() == 0 ? memory : Math.min(memory, gpuCores(gpu) * WHOLE / shape.gpuCores());
    }

    /** Whether two GPUs have equal free capacity. */
    public boolean alike(int gpu, int other) {
        return left[gpu] == left[other];
    }

    /** Whether a GPU holds one vGPU of a demand. */
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

    /** How many pods of a demand fit together, by each resource on its own. */
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

    /**
     * This capacity with one GPU and the host changed.
     *
     * @param before of the GPU, a result of {@link #left(Shape, GpuInfo, long, int, int, boolean)}
     * @param after of the GPU, likewise
     */
    FreeCapacity with(long before, long after, HostResources host) {
        long[] changed = left.clone();
        changed[Arrays.binarySearch(left, before)] = after;
        return of(shape, host, changed);
    }

    /**
     * This capacity with a pod.
     *
     * @param gpu the first of the pod's GPUs; the others are the next ones that hold a vGPU of it
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
        return other instanceof FreeCapacity that
                && hash == that.hash
                && cpuMillis == that.cpuMillis
                && memoryMiB == that.memoryMiB
                && shape.equals(that.shape)
                && Arrays.equals(left, that.left);
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
