package io.aliquot.scheduler.nodeagent;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.api.usage.UsageReport.LargeRegion;
import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.apiserver.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.PodId;
import java.time.Duration;
import java.util.List;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/**
 * Writes an event on a pod whose container enlarged its region, a file on the node's disk, as its node's agent says; leader
 * only. Only a pod that holds a share of that node's GPUs gets one.
 */
public final class LargeRegionEvents {
    /** Between two events about the same container. */
    static final Duration REPEAT_AFTER = Duration.ofMinutes(10);

    private static final String REASON = "GpuRegionTooLarge";
    private static final long MIB = 1L << 20;

    private final Supplier<List<UsageReport>> reports;
    private final Ledger ledger;
    private final Cluster cluster;
    private final Cache<Reported, Boolean> reported;

    private record Reported(String uid, String container) {}

    LargeRegionEvents(Supplier<List<UsageReport>> reports, Ledger ledger, Cluster cluster, LongSupplier nanoTime) {
        this.reports = reports;
        this.ledger = ledger;
        this.cluster = cluster;
        reported = Caffeine.newBuilder()
                .maximumSize(10_000)
                .expireAfterWrite(REPEAT_AFTER)
                .ticker(nanoTime::getAsLong)
                .build();
    }

    /** One run, every few seconds. */
    public void report() {
        if (!(cluster.leadership() instanceof Leads)) {
            reported.invalidateAll();
            return;
        }
        for (UsageReport report : reports.get()) {
            for (LargeRegion region : report.largeRegions()) {
                report(report.node(), region);
            }
        }
    }

    /** The agent knows no uid of a pod that does not use its GPU; a node runs one pod of a name at a time. */
    private void report(String node, LargeRegion region) {
        PodContainer container = region.container();
        ledger.view(node).stream()
                .flatMap(view -> view.holdings().stream())
                .filter(holding -> holding.state() == Holding.State.HELD)
                .map(Holding::pod)
                .filter(pod -> pod.namespace().equals(container.namespace())
                        && pod.name().equals(container.pod()))
                .findFirst()
                .ifPresent(pod -> write(pod, region));
    }

    private void write(PodId pod, LargeRegion region) {
        String container = region.container().container();
        if (reported.asMap().putIfAbsent(new Reported(pod.uid(), container), true) == null) {
            cluster.warn(
                    pod,
                    REASON,
                    region.cut()
                            ? "container " + container + " made its region, a file on the node's disk, "
                                    + region.bytes() / MIB
                                    + " MiB large, where its programs need less than 1 MiB. The node's agent has cut it"
                            : "container " + container + " has closed its region, a file on the node's disk, to the"
                                    + " node's agent, and can fill the disk with it: delete the pod");
        }
    }
}
