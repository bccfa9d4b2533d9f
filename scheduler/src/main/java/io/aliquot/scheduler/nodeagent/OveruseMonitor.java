package io.aliquot.scheduler.nodeagent;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.api.names.Vgpu;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.api.usage.UsageReport.OfContainer;
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
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.Function;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/*
 * What the scheduler relies on. Which pod's container uses how much is the agent's word, by NVML's figures for the
 * processes in the container's cgroup: nothing that a container writes lowers it. That the pod is bound to the agent's node
 * and which share of the GPU it holds is the ledger's: a wrong agent can at most cause events about and evictions of pods
 * of its own node. Pods are matched by uid; a container whose pod's uid the agent does not know is left out, because a
 * report may be a minute old, and a StatefulSet's next pod has the same name.
 */
/**
 * Acts on containers that have used more memory of a GPU than their limit for 10 s, as their node's agent reports them:
 * writes an event, counts their pods, and evicts the pods if the policy says so; leader only.
 */
public final class OveruseMonitor {
    /** Between two events about the same container and GPU. */
    static final Duration REPEAT_AFTER = Duration.ofMinutes(10);

    static final int MAX_EVICTIONS_PER_RUN = 20;

    private static final long MIB = 1L << 20;
    private static final long SMALLEST_TOLERANCE_MIB = 64;
    private static final long TOLERANCE_FRACTION = 50; // 2 %

    private static final Logger LOG = LoggerFactory.getLogger(OveruseMonitor.class);
    private static final String REASON = "GpuMemoryOveruse";

    private final Supplier<List<UsageReport>> reports;
    private final Ledger ledger;
    private final Cluster cluster;
    private final Evictions evictions;
    private final OverusePolicy policy;
    /** What has an event of less than {@link #REPEAT_AFTER} ago. */
    private final Cache<Reported, Boolean> reported;
    /** Uids of pods whose eviction succeeded, until they are gone. */
    private final Set<String> evicted = new HashSet<>();

    private volatile int pods;

    private record Reported(String uid, String container, String gpu) {}

    /** A pod and the first of its containers that the agent reports. */
    private record Overusing(Holding holding, OfContainer use, long usedMiB, long limitMiB) {
        String describe() {
            return "container " + use.container().container() + " uses " + usedMiB + " MiB of " + use.gpu()
                    + ", its limit is " + limitMiB + " MiB";
        }
    }

    public OveruseMonitor(
            Supplier<List<UsageReport>> reports,
            Ledger ledger,
            Cluster cluster,
            Evictions evictions,
            OverusePolicy policy,
            MeterRegistry metrics,
            LongSupplier nanoTime) {
        this.reports = reports;
        this.ledger = ledger;
        this.cluster = cluster;
        this.evictions = evictions;
        this.policy = policy;
        this.reported = Caffeine.newBuilder()
                .maximumSize(10_000)
                .expireAfterWrite(REPEAT_AFTER)
                .ticker(nanoTime::getAsLong)
                .build();
        Gauge.builder("aliquot.overuse.pods", this, monitor -> monitor.pods)
                .description("Pods with a container that uses more GPU memory than its limit")
                .register(metrics);
    }

    /** One run, every few seconds. */
    public void check() {
        if (!(cluster.leadership() instanceof Leads)) {
            pods = 0;
            reported.invalidateAll();
            evicted.clear();
            return;
        }
        var overusing = new LinkedHashMap<String, Overusing>();
        for (UsageReport report : reports.get()) {
            if (report.containers().stream().anyMatch(OveruseMonitor::mayExceedALimit)) {
                ledger.view(report.node()).ifPresent(node -> check(report, node, overusing));
            }
        }
        pods = overusing.size();
        evicted.retainAll(overusing.keySet());
        if (policy == OverusePolicy.EVICT) {
            overusing.values().stream()
                    .filter(one -> mayEvict(one.holding()))
                    .limit(MAX_EVICTIONS_PER_RUN)
                    .forEach(this::evict);
        }
    }

    private static boolean mayExceedALimit(OfContainer use) {
        return sustainedMiB(use) > SMALLEST_TOLERANCE_MIB;
    }

    private void check(UsageReport report, NodeView node, Map<String, Overusing> overusing) {
        Map<String, Holding> held = node.holdings().stream()
                .filter(holding -> holding.state() == Holding.State.HELD)
                .collect(Collectors.toMap(holding -> holding.pod().uid(), Function.identity()));
        for (OfContainer use : report.containers()) {
            Holding holding = held.get(use.container().uid());
            if (holding != null && mayExceedALimit(use)) {
                long usedMiB = sustainedMiB(use);
                OptionalLong limitMiB = limitMiB(holding, use);
                if (limitMiB.isPresent() && usedMiB > limitMiB.getAsLong() + tolerance(limitMiB.getAsLong())) {
                    var found = new Overusing(holding, use, usedMiB, limitMiB.getAsLong());
                    overusing.putIfAbsent(holding.pod().uid(), found);
                    writeEvent(found);
                }
            }
        }
    }

    private static long sustainedMiB(OfContainer use) {
        return use.sustainedBytes().orElse(0) / MIB;
    }

    /** What contexts and loaded code take before the shim knows of it. */
    private static long tolerance(long limitMiB) {
        return Math.max(SMALLEST_TOLERANCE_MIB, limitMiB / TOLERANCE_FRACTION);
    }

    /** What the container may use of the GPU by the ledger; empty if it has no limit, or holds no share of it. */
    private static OptionalLong limitMiB(Holding holding, OfContainer use) {
        return holding.shares().stream()
                .filter(share -> share.container().equals(use.container().container()))
                .flatMap(share -> share.vgpus().list().stream())
                .filter(vgpu -> vgpu.uuid().equals(use.gpu()) && !vgpu.exclusive())
                .mapToLong(Vgpu::memoryMiB)
                .reduce(Long::sum);
    }

    private void writeEvent(Overusing overusing) {
        PodId pod = overusing.holding.pod();
        var event = new Reported(pod.uid(), overusing.use.container().container(), overusing.use.gpu());
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
                LOG.warn("evicted {}: {}", pod, overusing.describe());
                cluster.note(pod, "Evicted", "evicted because " + overusing.describe());
            }
            case EvictOutcome.Gone gone -> evicted.add(pod.uid());
            case EvictOutcome.Protected(String why) -> cluster.warn(pod, REASON, "cannot be evicted: " + why);
            case EvictOutcome.Failed(String why) -> cluster.warn(pod, REASON, "cannot be evicted: " + why);
        }
    }
}
