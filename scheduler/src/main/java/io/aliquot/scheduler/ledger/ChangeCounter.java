package io.aliquot.scheduler.ledger;

import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * Counts the changes of all nodes' accounts in one sequence, so that no two accounts are at the same count. The counts
 * lie side by side in arrays, by the accounts' numbers: a check of thousands of nodes reads a few dozen memory pages.
 * Thread-safe.
 */
public final class ChangeCounter {
    private static final int CHUNK = 1 << 10;

    private final AtomicLong count = new AtomicLong();

    ChangeCounter() {}

    /** Grows at the end; an element is never replaced. */
    private volatile AtomicLongArray[] chunks = {};

    /** The count of an account's last change; 0 if it has not changed. */
    public long of(int number) {
        AtomicLongArray[] now = chunks;
        int chunk = number / CHUNK;
        return chunk < now.length ? now[chunk].get(number % CHUNK) : 0;
    }

    /**
     * Counts a change of an account. Calls for one account must be serialized.
     *
     * @return the count, 1 or more
     */
    long count(int number) {
        long now = count.incrementAndGet();
        chunk(number / CHUNK).set(number % CHUNK, now);
        return now;
    }

    private AtomicLongArray chunk(int chunk) {
        if (chunk >= chunks.length) {
            grow(chunk);
        }
        return chunks[chunk];
    }

    private synchronized void grow(int chunk) {
        AtomicLongArray[] now = chunks;
        if (chunk >= now.length) {
            AtomicLongArray[] more = Arrays.copyOf(now, chunk + 1);
            for (int i = now.length; i < more.length; i++) {
                more[i] = new AtomicLongArray(CHUNK);
            }
            chunks = more;
        }
    }
}
