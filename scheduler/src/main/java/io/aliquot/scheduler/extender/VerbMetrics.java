package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.server.health.Latency;
import io.aliquot.scheduler.server.health.Liveness;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Timer;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.springframework.stereotype.Component;

/** Measures the latency of the verbs, and fails the liveness probe if one hangs. */
@Component
final class VerbMetrics implements Liveness {
    /** Far beyond the timeout of kube-scheduler and the timeouts of every call that a verb waits for. */
    private static final Duration HUNG = Duration.ofSeconds(60);

    private record Call(String verb, long start) {}

    private final MeterRegistry metrics;
    private final LongSupplier nanoTime;
    private final Map<String, Timer> timers = new ConcurrentHashMap<>();
    private final Map<Object, Call> running = new ConcurrentHashMap<>();

    VerbMetrics(MeterRegistry metrics, LongSupplier nanoTime) {
        this.metrics = metrics;
        this.nanoTime = nanoTime;
    }

    <T> T time(String verb, Supplier<T> work) {
        var key = new Object();
        long start = nanoTime.getAsLong();
        running.put(key, new Call(verb, start));
        try {
            return work.get();
        } finally {
            running.remove(key);
            timers.computeIfAbsent(verb, this::register).record(Duration.ofNanos(nanoTime.getAsLong() - start));
        }
    }

    private Timer register(String verb) {
        return Latency.timer("aliquot.extender.request", "Time to answer kube-scheduler")
                .tag("verb", verb)
                .register(metrics);
    }

    @Override
    public Optional<String> broken() {
        long now = nanoTime.getAsLong();
        return running.values().stream()
                .filter(call -> now - call.start() > HUNG.toNanos())
                .findAny()
                .map(call -> call.verb() + " has not returned for " + HUNG.toSeconds() + " s");
    }
}
