package io.aliquot.scheduler.server;

import io.micrometer.core.instrument.Timer;
import java.time.Duration;

/** Histograms of times, all with the same buckets, so that one can be laid over another. */
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

    /** To be given tags and registered. */
    public static Timer.Builder timer(String name, String description) {
        return Timer.builder(name).description(description).serviceLevelObjectives(BUCKETS);
    }
}
