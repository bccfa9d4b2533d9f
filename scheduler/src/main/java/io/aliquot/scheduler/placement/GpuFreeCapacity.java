package io.aliquot.scheduler.placement;

import io.aliquot.api.Gpu;
import io.aliquot.api.SharingMode;

/**
 * A GPU and what others hold of it. Immutable, and made anew only when what is taken changes: what the chooser compares
 * for each pod is worked out here.
 */
public final class GpuFreeCapacity {
    /** What {@link #fullness} counts in. */
    static final int FULL = 1 << 20;

    final GpuCapacity card;
    final long freeMiB;
    final int freeCores;
    final int freeSlots;
    /** 0 for empty to {@link #FULL}: the mean of memory and compute, so that either makes a GPU full to some extent. */
    final int fullness;

    private final GpuAmount taken;

    /**
     * Room.
     *
     * @param taken by everybody but the pod in question
     */
    public GpuFreeCapacity(GpuCapacity card, GpuAmount taken) {
        this.card = card;
        this.taken = taken;
        this.freeMiB = card.memoryMiB - taken.memoryMiB();
        this.freeCores = card.cores - taken.cores();
        this.freeSlots = card.slots - taken.slots();
        this.fullness = fullnessWith(0, 0, false);
    }

    public GpuCapacity card() {
        return card;
    }

    public Gpu gpu() {
        return card.gpu;
    }

    public GpuAmount taken() {
        return taken;
    }

    /** Whether a pod may hold so much here beside the others. */
    public boolean holds(long memoryMiB, int cores, int slots, boolean exclusive) {
        return card.open && memoryMiB <= freeMiB && cores <= freeCores && slots <= freeSlots && alone(exclusive);
    }

    /** Whether any pod that might come finds something left once so much more is taken. */
    boolean usableWith(int slots, boolean exclusive) {
        return card.open && freeSlots > slots && !exclusive && !taken.exclusive();
    }

    /** Whether nobody's wish for a whole card is hurt. */
    boolean alone(boolean exclusive) {
        return !taken.exclusive() && (!exclusive || taken.slots() == 0);
    }

    int fullnessWith(long memoryMiB, int cores, boolean exclusive) {
        if (exclusive || taken.exclusive()) {
            return FULL;
        }
        long memory = (taken.memoryMiB() + memoryMiB) * FULL / card.memoryMiB;
        if (card.share == SharingMode.MEMORY) {
            return (int) memory;
        }
        long compute = (long) (taken.cores() + cores) * FULL / card.cores;
        return (int) ((memory + compute) / 2);
    }

    @Override
    public String toString() {
        return card.gpu.uuid() + " " + taken;
    }
}
