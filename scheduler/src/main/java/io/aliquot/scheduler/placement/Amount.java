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
public record Amount(long memoryMiB, int cores, int slots, boolean exclusive) {
    public static final Amount NOTHING = new Amount(0, 0, 0, false);

    /** One vGPU's. */
    public static Amount of(Vgpu vgpu) {
        return new Amount(vgpu.memoryMiB(), vgpu.cores(), 1, vgpu.exclusive());
    }

    /** A part of one container, and when that runs. */
    public record Timed(ContainerKind kind, Amount amount) {}

    /**
     * The most of one GPU that a pod's containers hold at once: all ordinary and restartable init containers together,
     * or an ordinary init container with the restartable ones declared before it, whichever is larger.
     *
     * @param containers in the order of their declaration, init containers first
     */
    public static Amount peak(List<Timed> containers) {
        Amount running = NOTHING;
        Amount peak = NOTHING;
        for (Timed container : containers) {
            Amount with = running.plus(container.amount());
            peak = peak.max(with);
            if (container.kind() != ContainerKind.INIT) {
                running = with;
            }
        }
        return peak;
    }

    Amount plus(Amount other) {
        return new Amount(
                memoryMiB + other.memoryMiB, cores + other.cores, slots + other.slots, exclusive || other.exclusive);
    }

    private Amount max(Amount other) {
        return new Amount(
                Math.max(memoryMiB, other.memoryMiB),
                Math.max(cores, other.cores),
                Math.max(slots, other.slots),
                exclusive || other.exclusive);
    }
}
