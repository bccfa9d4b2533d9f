package io.aliquot.scheduler.placement;

import io.aliquot.api.pods.Vgpu;
import java.util.List;

/**
 * An amount of one GPU that one or more vGPUs hold.
 *
 * @param memoryMiB device memory in MiB
 * @param cores compute in percent of the GPU
 * @param slots number of vGPUs
 * @param exclusive whether the GPU is held as a whole card, so that no other pod can share it
 */
public record GpuAmount(long memoryMiB, int cores, int slots, boolean exclusive) {
    public static final GpuAmount NOTHING = new GpuAmount(0, 0, 0, false);

    /** The amount that one vGPU holds. */
    public static GpuAmount of(Vgpu vgpu) {
        return new GpuAmount(vgpu.memoryMiB(), vgpu.cores(), 1, vgpu.exclusive());
    }

    /** The amount that one container holds, and when the container runs. */
    public record Timed(ContainerKind kind, GpuAmount amount) {}

    /**
     * The most of one GPU that a pod's containers hold at once. That is the larger of two: all app containers and
     * sidecars together, or an init container with the sidecars declared before it. Exclusive if any container's amount
     * is.
     *
     * @param containers in the order of their declaration, init containers and sidecars first
     */
    public static GpuAmount peak(List<Timed> containers) {
        var peak = new Peak();
        for (Timed container : containers) {
            GpuAmount amount = container.amount();
            peak.add(container.kind(), amount.memoryMiB(), amount.cores(), amount.slots(), amount.exclusive());
        }
        return peak.amount();
    }

    /** Accumulates {@link GpuAmount#peak} container by container. Not thread-safe. */
    static final class Peak {
        private long memoryMiB;
        private int cores;
        private int slots;
        private long runningMiB;
        private int runningCores;
        private int runningSlots;
        private boolean exclusive;

        /** Adds the next container in the order of declaration. */
        void add(
                ContainerKind kind,
                long containerMiB,
                int containerCores,
                int containerSlots,
                boolean containerExclusive) {
            memoryMiB = Math.max(memoryMiB, runningMiB + containerMiB);
            cores = Math.max(cores, runningCores + containerCores);
            slots = Math.max(slots, runningSlots + containerSlots);
            exclusive |= containerExclusive;
            boolean keepsRunning = switch (kind) {
                case INIT -> false;
                case SIDECAR, APP -> true;
            };
            if (keepsRunning) {
                runningMiB += containerMiB;
                runningCores += containerCores;
                runningSlots += containerSlots;
            }
        }

        GpuAmount amount() {
            return new GpuAmount(memoryMiB, cores, slots, exclusive);
        }
    }
}
