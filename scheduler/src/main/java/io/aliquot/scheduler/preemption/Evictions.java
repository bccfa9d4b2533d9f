package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.EvictOutcome;
import io.aliquot.scheduler.ledger.PodId;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;
import org.springframework.stereotype.Component;

/**
 * Evicts pods through the Eviction API, which enforces disruption budgets, or ends them in spite of these; counts the
 * outcomes, and remembers for {@link #RETRY_AFTER} which pods could not be evicted. Thread-safe.
 */
@Component
public final class Evictions {
    /** Pause after an eviction that a disruption budget blocked or that failed. */
    public static final Duration RETRY_AFTER = Duration.ofSeconds(10);

    /** What a pod has to end in that may not use its GPU any longer: it does not depend on the pod's author. */
    static final Duration GRACE = Duration.ofSeconds(5);

    /** Why a pod is evicted; a label of the metric. */
    public enum Cause {
        /** A pod of higher priority gets its GPU. */
        PREEMPTION,
        /** A container of the pod uses more GPU memory than its limit. */
        OVERUSE,
        /** A container of the pod does not see the files that limit it, or runs a program without the shim. */
        UNLIMITED
    }

    private final Cluster cluster;
    private final MeterRegistry metrics;
    private final LongSupplier nanoTime;
    /** Pods whose eviction was blocked or failed, by uid, and when to try again. */
    private final Map<String, Long> blocked = new ConcurrentHashMap<>();

    public Evictions(Cluster cluster, MeterRegistry metrics, LongSupplier nanoTime) {
        this.cluster = cluster;
        this.metrics = metrics;
        this.nanoTime = nanoTime;
    }

    /** Evicts the pod with this uid. */
    EvictOutcome evict(PodId pod, Cause cause) {
        return count(pod, cause, cluster.evict(pod, false));
    }

    /** Evicts the pod with this grace period instead of its own. */
    EvictOutcome evict(PodId pod, Duration grace, Cause cause) {
        return count(pod, cause, cluster.evict(pod, grace));
    }

    /** Ends the pod with this uid within {@link #GRACE}, also against its disruption budgets. */
    public EvictOutcome end(PodId pod, Cause cause) {
        return count(pod, cause, cluster.end(pod, GRACE));
    }

    private EvictOutcome count(PodId pod, Cause cause, EvictOutcome outcome) {
        Counter.builder("aliquot.evictions")
                .description("Evictions by cause and by how they ended")
                .tag("cause", cause.name().toLowerCase(Locale.ROOT))
                .tag("outcome", outcome.getClass().getSimpleName().toLowerCase(Locale.ROOT))
                .register(metrics)
                .increment();
        return remember(pod, outcome);
    }

    /** The outcome that an eviction would have now; evicts nothing. */
    EvictOutcome rehearse(PodId pod) {
        return remember(pod, cluster.evict(pod, true));
    }

    private EvictOutcome remember(PodId pod, EvictOutcome outcome) {
        long now = nanoTime.getAsLong();
        blocked.values().removeIf(until -> until - now <= 0);
        if (!outcome.succeeded()) {
            blocked.put(pod.uid(), now + RETRY_AFTER.toNanos());
        }
        return outcome;
    }

    /** Whether an eviction of the pod with this uid was blocked or failed less than {@link #RETRY_AFTER} ago. */
    public boolean isBlocked(String uid) {
        Long until = blocked.get(uid);
        return until != null && until - nanoTime.getAsLong() > 0;
    }
}
