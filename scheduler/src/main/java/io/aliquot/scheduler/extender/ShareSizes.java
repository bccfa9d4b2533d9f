package io.aliquot.scheduler.extender;

import io.aliquot.api.MemoryRequest;
import io.aliquot.api.MemoryRequest.Mebibytes;
import io.aliquot.api.MemoryRequest.Percentage;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuFreeCapacity;
import java.util.Arrays;

/**
 * The shapes of share that a cluster uses: what the running ones have of memory and cores, and what waiting pods ask.
 * Memory is stranded where none of them would fit: it is free, and nobody can be expected to come for it.
 */
final class ShareSizes {
    private static final int ALL = 100;
    private static final long NONE = Long.MAX_VALUE;

    private boolean any;
    private boolean wholeCards;
    /** The least memory of a shape that wants so many cores, by cores; of those that want so many MiB. */
    private final long[] leastMiB = new long[ALL + 1];
    /** Of those that want a part of the card, in percent: how much that is depends on the card. */
    private final int[] leastPercent = new int[ALL + 1];

    private boolean complete = true;

    ShareSizes() {
        Arrays.fill(leastMiB, NONE);
        Arrays.fill(leastPercent, ALL + 1);
    }

    void add(MemoryRequest memory, int cores) {
        int wanted = Math.max(0, Math.min(ALL, cores));
        if (memory instanceof Mebibytes mebibytes) {
            leastMiB[wanted] = Math.min(leastMiB[wanted], mebibytes.amount());
        } else if (memory instanceof Percentage percentage) {
            leastPercent[wanted] = Math.min(leastPercent[wanted], percentage.percent());
        } else {
            wholeCards = true;
        }
        any = true;
        complete = false;
    }

    /** Free memory that no shape can take, in MiB; all of it where nothing can be taken at all. */
    long stranded(GpuFreeCapacity room) {
        GpuAmount taken = room.allocated();
        long free = Math.max(0, room.capacity().memoryMiB() - taken.memoryMiB());
        int cores = room.capacity().cores() - taken.cores();
        boolean closed = !room.gpu().healthy() || room.capacity().cordoned() || taken.exclusive();
        if (closed || taken.slots() >= room.capacity().slots() || cores < 0) {
            return free;
        }
        // Without any shape to go by, whatever is free is as good as on an empty cluster.
        boolean fits = !any
                || (wholeCards && taken.slots() == 0)
                || least(Math.min(ALL, cores), room)
                        <= Math.min(free, room.capacity().vgpuMiB());
        return fits ? 0 : free;
    }

    /** Of shapes that are not whole cards. */
    private long least(int cores, GpuFreeCapacity room) {
        complete();
        int percent = leastPercent[cores];
        return percent > ALL
                ? leastMiB[cores]
                : Math.min(
                        leastMiB[cores],
                        new Percentage(percent).on(room.capacity().vgpuMiB()));
    }

    /** From least of exactly so many cores to least of at most so many. */
    private void complete() {
        if (!complete) {
            for (int cores = 1; cores <= ALL; cores++) {
                leastMiB[cores] = Math.min(leastMiB[cores], leastMiB[cores - 1]);
                leastPercent[cores] = Math.min(leastPercent[cores], leastPercent[cores - 1]);
            }
            complete = true;
        }
    }
}
