package io.aliquot.scheduler.placement;

import io.aliquot.api.Gpu;

/**
 * A GPU and what others hold of it.
 *
 * @param slots vGPUs at most
 * @param taken by everybody but the pod in question
 */
public record GpuRoom(Gpu gpu, int slots, Amount taken) {
    private static final int ALL_CORES = 100;

    /** Whether a pod may hold {@code amount} here beside the others. */
    boolean holds(Amount amount) {
        return gpu.healthy()
                && hasMemory(amount)
                && alone(amount)
                && taken.cores() + amount.cores() <= ALL_CORES
                && taken.slots() + amount.slots() <= slots;
    }

    boolean hasMemory(Amount amount) {
        return taken.memoryMiB() + amount.memoryMiB() <= gpu.memoryMiB();
    }

    boolean hasCores(Amount amount) {
        return taken.cores() + amount.cores() <= ALL_CORES;
    }

    boolean alone(Amount amount) {
        return !taken.exclusive() && (!amount.exclusive() || taken.slots() == 0);
    }

    /** 0 for empty to 1 for full: the mean of memory and compute, so that either makes a GPU full to some extent. */
    double fullnessWith(Amount amount) {
        double memory = (double) (taken.memoryMiB() + amount.memoryMiB()) / gpu.memoryMiB();
        double cores = (double) (taken.cores() + amount.cores()) / ALL_CORES;
        return taken.exclusive() || amount.exclusive() ? 1 : (memory + cores) / 2;
    }
}
