package io.aliquot.api.retry;

import java.time.Duration;
import java.util.function.DoubleSupplier;
import java.util.function.LongSupplier;

/**
 * Exponential backoff with jitter. Each pause is twice as long as the one before it, up to a longest one, less at most half by
 * chance, so that processes that lose a server together do not return together. If the last pause ended more than the longest
 * pause ago, the next one is the first again: an attempt that lasted that long is either healthy time or no burden.
 *
 * <p>Not thread-safe.
 */
public final class Backoff {
    private final LongSupplier nanoTime;
    private final DoubleSupplier random;
    private final Duration first;
    private final Duration longest;
    private Duration next;
    private long endsAt;

    /**
     * Creates a backoff without a pause under way.
     *
     * @param nanoTime a clock such as {@link System#nanoTime}: values may overflow, differences count
     */
    public Backoff(LongSupplier nanoTime, Duration first, Duration longest) {
        this(nanoTime, Math::random, first, longest);
    }

    /** {@code random} returns numbers from 0 to less than 1; at 0 a pause has its full length. */
    Backoff(LongSupplier nanoTime, DoubleSupplier random, Duration first, Duration longest) {
        this.nanoTime = nanoTime;
        this.random = random;
        this.first = first;
        this.longest = longest;
        next = first;
        endsAt = nanoTime.getAsLong();
    }

    /** Whether the last pause has ended. */
    public boolean isOver() {
        return nanoTime.getAsLong() - endsAt >= 0;
    }

    /** How long the pause under way still lasts; zero or negative if it has ended. */
    public Duration remaining() {
        return Duration.ofNanos(endsAt - nanoTime.getAsLong());
    }

    /** Starts the next pause; returns its length. */
    public Duration start() {
        long now = nanoTime.getAsLong();
        Duration full = now - endsAt > longest.toNanos() ? first : next;
        Duration doubled = full.multipliedBy(2);
        next = doubled.compareTo(longest) < 0 ? doubled : longest;
        long pause = (long) (full.toNanos() * (1 - random.getAsDouble() / 2));
        endsAt = now + pause;
        return Duration.ofNanos(pause);
    }

    /** Ends the pause; the next one is the first again. */
    public void reset() {
        next = first;
        endsAt = nanoTime.getAsLong();
    }
}
