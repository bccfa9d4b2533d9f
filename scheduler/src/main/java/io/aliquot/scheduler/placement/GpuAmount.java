package io.aliquot.scheduler.placement;

import io.aliquot.api.Vgpu;
import java.util.List;

/**
 * Part of one GPU.
 *
 * @param memoryMiB device memory
 * @param cores percent of its compute
 * @param slots vGPUs
 * @param exclusive whether nobody else may share the GPU
 */
public record GpuAmount(long memoryMiB, int cores, int slots, boolean exclusive) {
    public static final GpuAmount NOTHING = new GpuAmount(0, 0, 0, false);

    /** One vGPU's. */
    public static GpuAmount of(Vgpu vgpu) {
        return new GpuAmount(vgpu.memoryMiB(), vgpu.cores(), 1, vgpu.exclusive());
    }

    /** A part of one container, and when that runs. */
    public record Timed(ContainerKind kind, GpuAmount amount) {}

    /**
     * The most of one GPU that a pod's containers hold at once: all ordinary and restartable init containers together,
     * or an ordinary init container with the restartable ones declared before it, whichever is larger.
     *
     * @param containers in the order of their declaration, init containers first
     */
    public static GpuAmount peak(List<Timed> containers) {
        var peak = new Peak();
        for (Timed container : containers) {
            GpuAmount amount = container.amount();
            peak.add(container.kind(), amount.memoryMiB(), amount.cores(), amount.slots(), amount.exclusive());
        }
        return peak.amount();
    }

    /** Adds a pod's containers up to the most that they hold at once. */
    static final class Peak {
        private long memoryMiB;
        private int cores;
        private int slots;
        private long runningMiB;
        private int runningCores;
        private int runningSlots;
        private boolean exclusive;

        /** The next container, in the order of their declaration. */
        void add(ContainerKind kind, long ofMemoryMiB, int ofCores, int ofSlots, boolean ofExclusive) {
            memoryMiB = Math.max(memoryMiB, runningMiB + ofMemoryMiB);
            cores = Math.max(cores, runningCores + ofCores);
            slots = Math.max(slots, runningSlots + ofSlots);
            exclusive |= ofExclusive;
            if (kind != ContainerKind.INIT) {
                runningMiB += ofMemoryMiB;
                runningCores += ofCores;
                runningSlots += ofSlots;
            }
        }

        GpuAmount amount() {
            return new GpuAmount(memoryMiB, cores, slots, exclusive);
        }
    }
}
