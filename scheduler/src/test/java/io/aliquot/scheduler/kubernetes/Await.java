package io.aliquot.scheduler.kubernetes;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** Waits for a condition that a real server or another thread makes true. */
public final class Await {
    private Await() {}

    /** Checks the condition every 20 ms; fails after 30 s. */
    public static void await(String what, BooleanSupplier condition) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (!condition.getAsBoolean()) {
            assertThat(end - System.nanoTime()).as("not within 30 s: " + what).isPositive();
            try {
                TimeUnit.MILLISECONDS.sleep(20);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException(e);
            }
        }
    }
}
