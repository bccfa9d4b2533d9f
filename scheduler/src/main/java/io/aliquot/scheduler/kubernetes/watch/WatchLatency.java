package io.aliquot.scheduler.kubernetes.watch;

import io.aliquot.scheduler.server.Latency;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Timer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.springframework.stereotype.Component;

/**
 * Measures how late the watch on pods is: the time from the API server's answer to a Binding until the watch reports
 * the bound pod, 0 if the watch reports it first. Both times come from this process's clock. Thread-safe.
 */
@Component
public final class WatchLatency {
    private static final long UNANSWERED = Long.MIN_VALUE;
    private static final int MOST_BINDINGS = 10_000;

    private final Timer timer;
    private final LongSupplier nanoTime;
    /** The time of the API server's answer, by the pod's uid. */
    private final Map<String, Long> bindings = new ConcurrentHashMap<>();

    public WatchLatency(MeterRegistry metrics, LongSupplier nanoTime) {
        this.timer = Latency.timer(
                        "aliquot.watch.latency", "Time from the answer to a Binding until the watch on pods reports it")
                .register(metrics);
        this.nanoTime = nanoTime;
    }

    /** Call before a Binding is sent. */
    public void bindingSent(String uid) {
        if (bindings.size() >= MOST_BINDINGS) {
            bindings.clear(); // those of pods that came and went while there was no watch
        }
        bindings.put(uid, UNANSWERED);
    }

    /** Call after the answer; if the pod was not bound ({@code done} is false), nothing is measured. */
    public void bindingAnswered(String uid, boolean done) {
        bindings.computeIfPresent(uid, (key, unanswered) -> done ? nanoTime.getAsLong() : null);
    }

    /** Call when the watch reports a bound pod. */
    public void boundPodReported(String uid) {
        Long since = bindings.remove(uid);
        if (since != null) {
            timer.record(since == UNANSWERED ? 0 : nanoTime.getAsLong() - since, TimeUnit.NANOSECONDS);
        }
    }

    /** Call when a pod is deleted. */
    public void podDeleted(String uid) {
        bindings.remove(uid);
    }
}
