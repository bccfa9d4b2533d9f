package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.placement.Amount;
import io.aliquot.scheduler.placement.GpuRoom;
import java.util.Arrays;

/**
 * The shapes of share that a cluster uses: what the running ones have of memory and cores, and what waiting pods ask.
 * Memory is stranded where none of them would fit: it is free, and nobody can be expected to come for it.
 */
final class Shapes {
    private static final int ALL = 100;
    private static final long NONE = Long.MAX_VALUE;

    /** The least memory of a shape that wants so many cores, by cores. */
    private final long[] least = new long[ALL + 1];

    private boolean complete = true;

    Shapes() {
        Arrays.fill(least, NONE);
    }

    void add(long memoryMiB, int cores) {
        int wanted = Math.max(0, Math.min(ALL, cores));
        least[wanted] = Math.min(least[wanted], memoryMiB);
        complete = false;
    }

    /** Free memory that no shape can take, in MiB; all of it where nothing can be taken at all. */
    long stranded(GpuRoom room) {
        Amount taken = room.taken();
        long free = Math.max(0, room.card().memoryMiB() - taken.memoryMiB());
        int cores = room.card().cores() - taken.cores();
        boolean closed = !room.gpu().healthy() || room.card().cordoned() || taken.exclusive();
        if (closed || taken.slots() >= room.card().slots() || cores < 0) {
            return free;
        }
        complete();
        long smallest = least[Math.min(ALL, cores)];
        if (smallest == NONE) {
            // Without any shape to go by, whatever is free is as good as on an empty cluster.
            return least[ALL] == NONE ? 0 : free;
        }
        return smallest > free ? free : 0;
    }

    /** From least of exactly so many cores to least of at most so many. */
    private void complete() {
        if (!complete) {
            for (int cores = 1; cores <= ALL; cores++) {
                least[cores] = Math.min(least[cores], least[cores - 1]);
            }
            complete = true;
        }
    }
}
