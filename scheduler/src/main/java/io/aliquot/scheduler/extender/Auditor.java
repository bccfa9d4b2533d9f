package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.extender.Cluster.PodState;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Looks into GPUs that the ledger believes to be oversold: what it was told may be old, so the pods are read. Where they
 * do hold it all, somebody got past the fence, and an admin must know.
 */
final class Auditor {
    private static final Logger LOG = LoggerFactory.getLogger(Auditor.class);

    private final LedgerNews news;
    private final Cluster cluster;
    private final Counter oversold;

    Auditor(LedgerNews news, Cluster cluster, MeterRegistry metrics) {
        this.news = news;
        this.cluster = cluster;
        this.oversold = Counter.builder("aliquot.ledger.oversold")
                .description("Times that pods were found to hold more of a GPU than it has")
                .register(metrics);
    }

    void audit() {
        for (LedgerNews.Oversold suspect : news.takeOversold()) {
            if (suspect.holders().stream().allMatch(pod -> cluster.read(pod) instanceof PodState.Bound)) {
                oversold.increment();
                LOG.error(
                        "oversold node={} gpu={} noticed with {} held by {}",
                        suspect.node(),
                        suspect.gpu(),
                        suspect.latest(),
                        suspect.holders());
                cluster.warn(
                        suspect.latest(),
                        "GpuOversold",
                        "with this pod, " + suspect.gpu() + " of node " + suspect.node()
                                + " is allocated beyond its capacity; delete this pod, or another one there");
            }
        }
    }
}
