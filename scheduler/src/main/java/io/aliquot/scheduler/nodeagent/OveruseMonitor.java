package io.aliquot.scheduler.nodeagent;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.api.UnchargedUse;
import io.aliquot.api.Vgpu;
import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.apiserver.Cluster.EvictOutcome;
import io.aliquot.scheduler.apiserver.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.preemption.Evictions;
import io.aliquot.scheduler.preemption.Evictions.Cause;
import io.aliquot.scheduler.settings.OverusePolicy;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/*
 * What the scheduler relies on. Which container uses how much is the agent's word. That the pod is bound to the agent's
 * node and holds a share of the GPU is the ledger's: a wrong agent can at most cause events about and evictions of pods
 * of its own node.
 */
/**
 * Acts on containers that use more memory of a GPU than their limit, as their node's agent reports them: writes an event,
 * counts their pods, and evicts the pods if the policy says so; leader only.
 */
public final class OveruseMonitor {
    /**
     * How old an agent's report can be. A report names pods without their uids, so it may concern an earlier pod of the
     * same name: a pod counts this long after its binding.
     */
    static final Duration OLDEST_REPORT = Duration.ofSeconds(30);
    /** Between two events about the same container and GPU. */
    static final Duration REPEAT_AFTER = Duration.ofMinutes(10);

    static final int MAX_EVICTIONS_PER_RUN = 20;

    private static final long SMALLEST_TOLERANCE_MIB = 64;
    private static final long TOLERANCE_FRACTION = 50; // 2 %

    private static final Logger LOG = LoggerFactory.getLogger(OveruseMonitor.class);
    private static final String REASON = "GpuMemoryOveruse";

    private final NodeReports reports;
    private final Ledger ledger;
    private final Cluster cluster;
    private final Evictions evictions;
    private final OverusePolicy policy;
    private final InstantSource clock;
    /** What has an event of less than {@link #REPEAT_AFTER} ago. */
    private final Cache<Reported, Boolean> reported;
    /** What no pod of the reporting node explains and the log has, while the agent reports it. */
    private final Set<Ignored> ignored = new HashSet<>();
    /** Uids of pods whose eviction succeeded, until they are gone. */
    private final Set<String> evicted = new HashSet<>();

    private volatile int pods;

    private record Reported(String uid, String container, String gpu) {}

    /** A pod and the first of its containers that the agent reports. */
    private record Overusing(Holding holding, UnchargedUse use, long limitMiB) {
        String describe() {
            return "container " + use.container() + " uses " + use.usedMiB() + " MiB of " + use.gpu()
                    + ", its limit is " + limitMiB + " MiB";
        }
    }

    private record Ignored(String node, String pod, String container, String gpu) {}

    public OveruseMonitor(
            NodeReports reports,
            Ledger ledger,
            Cluster cluster,
            Evictions evictions,
            OverusePolicy policy,
            MeterRegistry metrics,
            InstantSource clock,
            LongSupplier nanoTime) {
        this.reports = reports;
        this.ledger = ledger;
        this.cluster = cluster;
        this.evictions = evictions;
        this.policy = policy;
        this.clock = clock;
        this.reported = Caffeine.newBuilder()
                .maximumSize(10_000)
                .expireAfterWrite(REPEAT_AFTER)
                .ticker(nanoTime::getAsLong)
                .build();
        Gauge.builder("aliquot.overuse.pods", this, monitor -> monitor.pods)
                .description("Pods with a container that uses more GPU memory than its limit")
                .register(metrics);
    }

    /** One run, about once a second. */
    public void check() {
        if (!(cluster.leadership() instanceof Leads)) {
            pods = 0;
            reported.invalidateAll();
            ignored.clear();
            evicted.clear();
            return;
        }
        var overusing = new LinkedHashMap<String, Overusing>();
        var unexplained = new HashSet<Ignored>();
        for (NodeReport report : reports.all()) {
            if (!report.uncharged().isEmpty()) {
                ledger.view(report.node().name()).ifPresent(node -> check(report, node, overusing, unexplained));
            }
        }
        ignored.retainAll(unexplained);
        pods = overusing.size();
        evicted.retainAll(overusing.keySet());
        if (policy == OverusePolicy.EVICT) {
            overusing.values().stream()
                    .filter(one -> mayEvict(one.holding()))
                    .limit(MAX_EVICTIONS_PER_RUN)
                    .forEach(this::evict);
        }
    }

    private void check(NodeReport report, NodeView node, Map<String, Overusing> overusing, Set<Ignored> unexplained) {
        for (UnchargedUse use : report.uncharged()) {
            Optional<Holding> holder = node.holdings().stream()
                    .filter(holding -> holding.state() == Holding.State.HELD
                            && use.pod()
                                    .equals(holding.pod().namespace() + "/"
                                            + holding.pod().name()))
                    .findFirst();
            long limitMiB = holder.map(holding -> limitMiB(holding, use)).orElse(0L);
            if (limitMiB == 0) {
                var entry = new Ignored(node.name(), use.pod(), use.container(), use.gpu());
                unexplained.add(entry);
                if (ignored.add(entry)) {
                    LOG.info("ignored node={} reports {}: no such pod there has a share of that GPU", node.name(), use);
                }
                continue;
            }
            Holding holding = holder.orElseThrow();
            boolean settled = !holding.bound().isAfter(clock.instant().minus(OLDEST_REPORT));
            // The agent may not have seen yet that a resize raised the limit.
            if (settled && use.usedMiB() > limitMiB + tolerance(limitMiB)) {
                var found = new Overusing(holding, use, limitMiB);
                overusing.putIfAbsent(holding.pod().uid(), found);
                writeEvent(found);
            }
        }
    }

    /** What contexts and loaded code take before the shim knows of it. */
    private static long tolerance(long limitMiB) {
        return Math.max(SMALLEST_TOLERANCE_MIB, limitMiB / TOLERANCE_FRACTION);
    }

    /** What the container may use of the GPU by the ledger; 0 if it holds no share of it. */
    private static long limitMiB(Holding holding, UnchargedUse use) {
        return holding.shares().stream()
                .filter(share -> share.container().equals(use.container()))
                .flatMap(share -> share.vgpus().list().stream())
                .filter(vgpu -> vgpu.uuid().equals(use.gpu()))
                .mapToLong(Vgpu::memoryMiB)
                .sum();
    }

    private void writeEvent(Overusing overusing) {
        PodId pod = overusing.holding.pod();
        var event = new Reported(pod.uid(), overusing.use.container(), overusing.use.gpu());
        if (reported.asMap().putIfAbsent(event, true) == null) {
            cluster.warn(pod, REASON, overusing.describe());
        }
    }

    private boolean mayEvict(Holding holding) {
        String uid = holding.pod().uid();
        return holding.leavesBy().equals(Instant.MAX) && !evicted.contains(uid) && !evictions.isBlocked(uid);
    }

    private void evict(Overusing overusing) {
        PodId pod = overusing.holding.pod();
        switch (evictions.evict(pod, Cause.OVERUSE)) {
            case EvictOutcome.Done done -> {
                evicted.add(pod.uid());
                LOG.warn("evicted {} {}", pod, overusing.use);
                cluster.note(pod, "Evicted", "evicted because " + overusing.describe());
            }
            case EvictOutcome.Gone gone -> evicted.add(pod.uid());
            case EvictOutcome.Protected(String why) -> cluster.warn(pod, REASON, "cannot be evicted: " + why);
            case EvictOutcome.Failed(String why) -> cluster.warn(pod, REASON, "cannot be evicted: " + why);
        }
    }
}
