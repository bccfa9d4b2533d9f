package io.aliquot.scheduler.kubernetes.watch;

import io.aliquot.scheduler.server.Latency;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Timer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/**
 * How old the watch's news of pods is: the time from the API server's answer to a Binding of ours to the watch's word of
 * it. None where the word comes first. No clock but ours has a part in it. Thread-safe.
 */
public final class WatchLatency {
    private static final long UNANSWERED = Long.MIN_VALUE;

    private final Timer timer;
    private final LongSupplier nanoTime;
    /** Since when the watch could know, by the pod's uid. */
    private final Map<String, Long> bindings = new ConcurrentHashMap<>();

    public WatchLatency(MeterRegistry metrics, LongSupplier nanoTime) {
        this.timer = Latency.timer(
                        "aliquot.watch.lag", "Time from the answer to a Binding until the watch on pods tells of it")
                .register(metrics);
        this.nanoTime = nanoTime;
    }

    /** A Binding is about to be sent. */
    public void sends(String uid) {
        bindings.put(uid, UNANSWERED);
    }

    /** It was answered; where it was not {@code done} there is nothing to wait for. */
    public void answered(String uid, boolean done) {
        bindings.computeIfPresent(uid, (key, unanswered) -> done ? nanoTime.getAsLong() : null);
    }

    /** The watch tells of a pod that is bound. */
    public void told(String uid) {
        Long since = bindings.remove(uid);
        if (since != null) {
            timer.record(since == UNANSWERED ? 0 : nanoTime.getAsLong() - since, TimeUnit.NANOSECONDS);
        }
    }

    /** A pod is no more. */
    public void gone(String uid) {
        bindings.remove(uid);
    }
}
