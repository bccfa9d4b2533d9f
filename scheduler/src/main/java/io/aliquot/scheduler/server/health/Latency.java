package io.aliquot.scheduler.server.health;

import io.micrometer.core.instrument.Timer;
import java.time.Duration;

/** Histograms of durations, all with the same buckets, so that they can be compared. */
public final class Latency {
    private static final Duration[] BUCKETS = {
        Duration.ofMillis(1),
        Duration.ofMillis(3),
        Duration.ofMillis(10),
        Duration.ofMillis(30),
        Duration.ofMillis(100),
        Duration.ofMillis(300),
        Duration.ofSeconds(1),
        Duration.ofSeconds(5)
    };

    private Latency() {}

    /** The caller adds tags and registers the timer. */
    public static Timer.Builder timer(String name, String description) {
        return Timer.builder(name).description(description).serviceLevelObjectives(BUCKETS);
    }
}
