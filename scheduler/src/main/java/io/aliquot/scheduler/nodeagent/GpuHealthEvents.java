package io.aliquot.scheduler.nodeagent;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.nodes.GpuHealth.Unhealthy;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.cluster.NodeId;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.PodId;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.function.LongSupplier;
import org.springframework.stereotype.Component;

/*
 * How the events are bounded. A GPU gets events about one change a minute; if its health changes more often, the state
 * at the end of the minute counts. A run writes at most MAX_EVENTS_PER_RUN events and those of one GPU, because a node
 * that loses its driver loses all its GPUs; the next run, a second later, goes on.
 */
/**
 * Writes events when a GPU becomes unhealthy, on its node and on the pods that hold a share of it, and on the node when
 * it is healthy again; leader only.
 */
@Component
public final class GpuHealthEvents {
    /** A new leader writes events about a GPU that became unhealthy this recently. */
    static final Duration RECENT = Duration.ofMinutes(10);
    /** Between the events about two changes of one GPU. */
    static final Duration MIN_INTERVAL = Duration.ofMinutes(1);

    static final int MAX_EVENTS_PER_RUN = 50;

    private static final String UNHEALTHY = "GpuUnhealthy";
    private static final String HEALTHY = "GpuHealthy";

    private final NodeReports reports;
    private final Ledger ledger;
    private final Cluster cluster;
    private final InstantSource clock;
    private final LongSupplier nanoTime;
    /** By GPU what the last events said, or the health that was found first. */
    private final Map<GpuOnNode, Known> known = new HashMap<>();

    private record GpuOnNode(NodeId node, String uuid) {}

    /**
     * The health of a GPU.
     *
     * @param unhealthySince {@link Instant#MAX} for a healthy one. It tells one period of being unhealthy from the next; the
     *     reason may change within a period
     * @param nextEvent when the next change may be written, in nanoseconds of the clock
     */
    private record Known(Instant unhealthySince, long nextEvent) {}

    public GpuHealthEvents(
            NodeReports reports, Ledger ledger, Cluster cluster, InstantSource clock, LongSupplier nanoTime) {
        this.reports = reports;
        this.ledger = ledger;
        this.cluster = cluster;
        this.clock = clock;
        this.nanoTime = nanoTime;
    }

    /** One run, about once a second. */
    public void report() {
        if (!(cluster.leadership() instanceof Leads)) {
            known.clear();
            return;
        }
        var present = new HashSet<GpuOnNode>();
        int events = 0;
        for (NodeReport report : reports.all()) {
            for (Gpu gpu : report.gpus()) {
                present.add(new GpuOnNode(report.node(), gpu.uuid()));
                if (events < MAX_EVENTS_PER_RUN) {
                    events += report(report.node(), gpu);
                }
            }
        }
        known.keySet().retainAll(present);
    }

    /** Returns the number of events written. */
    private int report(NodeId node, Gpu gpu) {
        long now = nanoTime.getAsLong();
        Instant unhealthySince = gpu.health().unhealthy().map(Unhealthy::since).orElse(Instant.MAX);
        var key = new GpuOnNode(node, gpu.uuid());
        Known before = known.get(key);
        if (before == null) {
            boolean writes =
                    !gpu.healthy() && !unhealthySince.isBefore(clock.instant().minus(RECENT));
            known.put(key, new Known(unhealthySince, now + (writes ? MIN_INTERVAL.toNanos() : 0)));
            return writes ? write(node, gpu) : 0;
        }
        if (before.unhealthySince().equals(unhealthySince) || now - before.nextEvent() < 0) {
            return 0;
        }
        known.put(key, new Known(unhealthySince, now + MIN_INTERVAL.toNanos()));
        return write(node, gpu);
    }

    private int write(NodeId node, Gpu gpu) {
        String name = gpu.uuid() + " (" + gpu.model() + ")";
        return switch (gpu.health()) {
            case GpuHealth.Healthy healthy -> {
                cluster.note(node, HEALTHY, name + " is healthy again and takes new vGPUs");
                yield 1;
            }
            case Unhealthy unhealthy -> {
                String state = unhealthy.describe() + ". ";
                cluster.warn(node, UNHEALTHY, name + " is " + state + untilWhen(unhealthy));
                List<PodId> holders = holders(node, gpu);
                for (PodId pod : holders) {
                    cluster.warn(
                            pod,
                            UNHEALTHY,
                            "the pod holds a share of " + name + " on node " + node.name() + ", which is " + state
                                    + "The share stays; to move to another GPU, delete the pod");
                }
                yield 1 + holders.size();
            }
        };
    }

    private static String untilWhen(Unhealthy unhealthy) {
        return "It takes no new vGPUs until "
                + switch (unhealthy.recovery()) {
                    case PROBE -> "the agent's probe succeeds";
                    case RESET -> "the GPU is reset or the driver is reloaded; end its pods before";
                    case REBOOT -> "the node reboots";
                };
    }

    private List<PodId> holders(NodeId node, Gpu gpu) {
        return ledger.view(node.name()).stream()
                .flatMap(view -> view.holdings().stream())
                .filter(holding -> holding.isShareOf(gpu.uuid()))
                .map(Holding::pod)
                .toList();
    }
}
