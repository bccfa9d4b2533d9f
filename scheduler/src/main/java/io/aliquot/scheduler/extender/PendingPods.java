package io.aliquot.scheduler.extender;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.PodAsk;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/**
 * What pods that are being placed want, and which of them wait for room. kube-scheduler sends a pod with Filter only,
 * so Bind asks here. Bounded: a forgotten pod is read again at Bind, and one that waits is retried by kube-scheduler
 * itself every five minutes. Thread-safe.
 */
public final class PendingPods {
    private static final int MOST = 20_000;

    private record Entry(PodId pod, PodAsk ask, boolean waits) {}

    private final Cache<String, Entry> entries = Caffeine.newBuilder()
            .maximumSize(MOST)
            .expireAfterWrite(Duration.ofMinutes(15))
            .build();

    /** A pod that wants this, and waits for room until it is told otherwise. */
    void waits(PodId pod, PodAsk ask) {
        entries.put(pod.uid(), new Entry(pod, ask, true));
    }

    void fits(PodId pod, PodAsk ask) {
        entries.put(pod.uid(), new Entry(pod, ask, false));
    }

    Optional<PodAsk> ask(String uid) {
        return Optional.ofNullable(entries.getIfPresent(uid)).map(Entry::ask);
    }

    /** The pod has a node, has ended or is gone. */
    public void forget(String uid) {
        entries.invalidate(uid);
    }

    /** A pod that waits for room, with what it wants. */
    record Waiting(PodId pod, PodAsk ask) {}

    List<Waiting> waiting() {
        return entries.asMap().values().stream()
                .filter(Entry::waits)
                .map(entry -> new Waiting(entry.pod(), entry.ask()))
                .toList();
    }
}
