package io.aliquot.deviceplugin;

import java.time.Duration;
import java.util.OptionalLong;
import java.util.function.LongSupplier;

/** A time in which nothing may interrupt; begins at the first question after an interruption. Not thread-safe. */
final class QuietTime {
    private final LongSupplier nanoTime;
    private final Duration length;
    private OptionalLong began = OptionalLong.empty();

    QuietTime(LongSupplier nanoTime, Duration length) {
        this.nanoTime = nanoTime;
        this.length = length;
    }

    void interrupt() {
        began = OptionalLong.empty();
    }

    boolean isOver() {
        long now = nanoTime.getAsLong();
        if (began.isEmpty()) {
            began = OptionalLong.of(now);
        }
        return now - began.getAsLong() >= length.toNanos();
    }
}
