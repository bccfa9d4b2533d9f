package io.aliquot.scheduler.nodeagent;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.ledger.PodId;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import org.springframework.stereotype.Component;

/*
 * Why there are periods. After a reboot a kubelet rejects the pods of its node one after the other, and one event is to
 * name them all. The next leader, or the same one after a restart, finds the rejected pods again. The period of a pod's
 * rejection is the same for each replica, so an event of the same node and period has the same name, and the API server
 * refuses the second one.
 */
/**
 * Writes an event on a node that names the pods with shares that its kubelet rejected, as it does with those that ran
 * before a reboot; leader only. The kubelet itself writes an event on each such pod. Thread-safe.
 */
@Component
public final class RejectedPodEvents {
    static final String REASON = "GpuPodsRejected";

    /** One event names all pods that a kubelet rejects in a period of this length, by the API server's clock. */
    static final Duration PERIOD = Duration.ofSeconds(10);

    /** From the first rejection of a period that is seen on, until all of them are. */
    static final Duration COMPLETE = PERIOD.plusSeconds(2);

    /** A replica that has just started or begun to lead names pods that were rejected this recently. */
    static final Duration RECENT = Duration.ofMinutes(10);

    /** The API server allows 1,024 characters of text. */
    private static final int MAX_NAMES_LENGTH = 700;

    private static final int MAX_PODS = 10_000;

    private final NodeReports reports;
    private final Cluster cluster;
    private final InstantSource clock;
    private final LongSupplier nanoTime;
    private final Map<String, Rejection> byUid = new HashMap<>();

    private record Occasion(String node, long period) {}

    private record Rejection(Occasion occasion, PodId pod, Instant at, long seen) {}

    RejectedPodEvents(NodeReports reports, Cluster cluster, InstantSource clock, LongSupplier nanoTime) {
        this.reports = reports;
        this.cluster = cluster;
        this.clock = clock;
        this.nanoTime = nanoTime;
    }

    /** Notes a rejected pod, which the watch may show many times. */
    public synchronized void rejected(String node, PodId pod, Instant at) {
        if (byUid.size() < MAX_PODS && isRecent(at)) {
            var occasion = new Occasion(node, at.getEpochSecond() / PERIOD.toSeconds());
            byUid.putIfAbsent(pod.uid(), new Rejection(occasion, pod, at, nanoTime.getAsLong()));
        }
    }

    /** One run, about once a second. */
    public synchronized void report() {
        byUid.values().removeIf(rejection -> !isRecent(rejection.at()));
        if (byUid.isEmpty() || !(cluster.leadership() instanceof Leads)) {
            return;
        }
        byUid.values().stream()
                .collect(Collectors.groupingBy(Rejection::occasion))
                .forEach(this::report);
    }

    private void report(Occasion occasion, List<Rejection> rejections) {
        long now = nanoTime.getAsLong();
        if (rejections.stream().anyMatch(rejection -> now - rejection.seen() >= COMPLETE.toNanos())) {
            reports.find(occasion.node())
                    .ifPresent(report -> cluster.warnOnce(
                            report.node(), REASON, Long.toString(occasion.period()), message(rejections)));
        }
    }

    private static String message(List<Rejection> rejections) {
        List<String> names = rejections.stream()
                .map(rejection ->
                        rejection.pod().namespace() + "/" + rejection.pod().name())
                .sorted()
                .toList();
        var text = new StringBuilder();
        int named = 0;
        while (named < names.size() && text.length() + names.get(named).length() <= MAX_NAMES_LENGTH) {
            text.append(named == 0 ? "" : ", ").append(names.get(named));
            named++;
        }
        String more = named < names.size() ? " and " + (names.size() - named) + " more" : "";
        return "the kubelet rejected " + names.size() + (names.size() == 1 ? " pod" : " pods")
                + ", whose vGPUs are free again: " + text + more
                + ". Controllers create other pods; recreate one that has no controller";
    }

    private boolean isRecent(Instant at) {
        return at.isAfter(clock.instant().minus(RECENT));
    }
}
