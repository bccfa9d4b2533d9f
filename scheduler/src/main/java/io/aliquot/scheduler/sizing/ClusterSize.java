package io.aliquot.scheduler.sizing;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.server.health.Readiness;
import io.aliquot.scheduler.settings.Settings;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import java.util.Optional;
import org.springframework.stereotype.Component;

/**
 * Says that the cluster has far more nodes than the memory limits of the scheduler's containers are for: by an event on the
 * leader's pod, a line of {@code /readyz} and a metric for an alert. The chart refuses such a cluster only where Helm has a
 * connection to it, and a cluster grows.
 */
@Component
public final class ClusterSize implements Readiness {
    static final String REASON = "ClusterTooLarge";

    private final Ledger ledger;
    private final Cluster cluster;
    private final PodId self;
    /** 0 if the limits do not follow from a number of nodes. */
    private final int plannedNodes;

    public ClusterSize(Ledger ledger, Cluster cluster, Settings settings, MeterRegistry metrics) {
        this.ledger = ledger;
        this.cluster = cluster;
        this.self = new PodId(settings.namespace(), settings.podName(), settings.podUid());
        this.plannedNodes = settings.plannedNodes();
        if (plannedNodes > 0) {
            Gauge.builder("aliquot.planned.nodes", () -> plannedNodes)
                    .description("Nodes that the memory limits of the scheduler's containers are for")
                    .register(metrics);
        }
    }

    /** One run; a replica that does not lead writes nothing. */
    public void report() {
        if (cluster.leadership() instanceof Leads) {
            remark().ifPresent(sentence -> cluster.warn(self, REASON, REASON, sentence));
        }
    }

    @Override
    public Optional<String> waitsFor() {
        return Optional.empty();
    }

    /** With the tolerance of the chart's refusal (refusals.yaml). */
    @Override
    public Optional<String> remark() {
        int nodes = ledger.nodeCount();
        return plannedNodes == 0 || 2L * nodes <= 3L * plannedNodes
                ? Optional.empty()
                : Optional.of("the cluster has " + nodes
                        + " nodes, and the memory limits of the scheduler's containers are for " + plannedNodes
                        + ": set the chart value cluster.nodes to the number of nodes that the cluster may have, or"
                        + " scheduler.resources.limits.memory and kubeScheduler.resources.limits.memory");
    }
}
