package io.aliquot.scheduler.ledger;

import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * Counts what happens to nodes' accounts, all in one count, so that no two are ever at the same. By the accounts' numbers,
 * side by side: whoever looks whether anything has changed on thousands of nodes reads some dozens of pages. Thread-safe.
 */
public final class ChangeCounter {
    private static final int CHUNK = 1 << 10;

    private final AtomicLong count = new AtomicLong();

    ChangeCounter() {}

    /** More are added behind them; none is ever replaced. */
    private volatile AtomicLongArray[] chunks = {};

    /** At which count an account last changed; 0 for none. */
    public long of(int number) {
        AtomicLongArray[] now = chunks;
        int chunk = number / CHUNK;
        return chunk < now.length ? now[chunk].get(number % CHUNK) : 0;
    }

    /**
     * An account changes; not to be called for the same one by two threads at once.
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
