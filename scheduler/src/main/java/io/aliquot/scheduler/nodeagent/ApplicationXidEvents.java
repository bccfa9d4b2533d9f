package io.aliquot.scheduler.nodeagent;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.api.usage.UsageReport.ApplicationXid;
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
 * Writes an event on the pod whose program caused an XID error, as its node's agent says; leader only. Only a pod that is
 * bound to that node and holds a share of that GPU gets one.
 */
public final class ApplicationXidEvents {
    /** Between two events about the same error of the same container. */
    static final Duration REPEAT_AFTER = Duration.ofMinutes(10);

    private static final String REASON = "GpuProgramError";

    private final Supplier<List<UsageReport>> reports;
    private final Ledger ledger;
    private final Cluster cluster;
    private final Cache<Reported, Boolean> reported;

    private record Reported(String uid, String container, String gpu, int number) {}

    ApplicationXidEvents(Supplier<List<UsageReport>> reports, Ledger ledger, Cluster cluster, LongSupplier nanoTime) {
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
            for (ApplicationXid xid : report.xids()) {
                report(report.node(), xid);
            }
        }
    }

    private void report(String node, ApplicationXid xid) {
        ledger.view(node).stream()
                .flatMap(view -> view.holdings().stream())
                .filter(holding -> holding.isShareOf(xid.gpu())
                        && holding.pod().uid().equals(xid.container().uid()))
                .map(Holding::pod)
                .findFirst()
                .ifPresent(pod -> write(pod, xid));
    }

    private void write(PodId pod, ApplicationXid xid) {
        String container = xid.container().container();
        var key = new Reported(pod.uid(), container, xid.gpu(), xid.number());
        if (reported.asMap().putIfAbsent(key, true) == null) {
            String meaning = xid.meaning().isEmpty() ? "" : " (" + xid.meaning() + ")";
            cluster.warn(
                    pod,
                    REASON,
                    "a program of container " + container + " caused XID " + xid.number() + meaning + " on " + xid.gpu()
                            + ", which works as before. No other container used the GPU then");
        }
    }
}
