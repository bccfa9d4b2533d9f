package io.aliquot.scheduler.nodeagent;

import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.api.usage.UsageReport.OfContainer;
import io.aliquot.api.usage.UsageReport.Problem;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.EvictOutcome;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
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
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.Function;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/*
 * What the scheduler relies on. Which pod's container uses how much is the agent's word, by NVML's figures for the
 * processes in the container's cgroup: nothing that a container writes lowers it. So is what a process sees of the files
 * that limit it, by the kernel's list of its mounts. That the pod is bound to the agent's node
 * and which share of the GPU it holds is the ledger's: a wrong agent can at most cause events about and evictions of pods
 * of its own node. Pods are matched by uid; a container whose pod's uid the agent does not know is left out, because a
 * report may be a minute old, and a StatefulSet's next pod has the same name.
 */
/**
 * Acts on containers that have used more memory of a GPU than their limit for 10 s, or to which their limits do not apply,
 * as their node's agent reports them: writes an event, counts their pods, and ends the pods if the policy says so; leader
 * only. Limits do not apply to a container that does not see them, which needs a mount, a link or another root at Aliquot's
 * paths, nor to a program without the shim, as in an image with musl. The first look at an image is that of the hook of a CDI
 * specification, where there is one, with the same advice (native-shim/hook/image.c).
 */
public final class OveruseMonitor {
    /** After a resize, for the pod to free what it may no longer use. */
    static final Duration AFTER_RESIZE = Duration.ofSeconds(60);

    static final int MAX_EVICTIONS_PER_RUN = 20;

    private static final long MIB = 1L << 20;
    private static final long SMALLEST_TOLERANCE_MIB = 64;
    private static final long TOLERANCE_FRACTION = 50; // 2 %

    private static final Logger LOG = LoggerFactory.getLogger(OveruseMonitor.class);

    private final Supplier<List<UsageReport>> reports;
    private final Ledger ledger;
    private final Cluster cluster;
    private final Evictions evictions;
    private final LongSupplier nanoTime;
    private final Set<Kind> ended;
    /** Uids of pods that were ended, until they are gone. */
    private final Set<String> gone = new HashSet<>();

    private volatile Map<Kind, Long> pods = Map.of();

    /** What the agent found. */
    private enum Kind {
        OVERUSE("GpuMemoryOveruse", Cause.OVERUSE),
        COVERED("GpuLimitsCovered", Cause.UNLIMITED),
        WITHOUT_SHIM("GpuProgramWithoutShim", Cause.UNLIMITED);

        private final String reason;
        private final Cause cause;

        Kind(String reason, Cause cause) {
            this.reason = reason;
            this.cause = cause;
        }
    }

    /**
     * Something wrong with a container.
     *
     * @param gpu empty if it is not about one
     */
    private record Finding(Holding holding, String container, String gpu, Kind kind, String description) {
        String uid() {
            return holding.pod().uid();
        }
    }

    public OveruseMonitor(
            Supplier<List<UsageReport>> reports,
            Ledger ledger,
            Cluster cluster,
            Evictions evictions,
            OverusePolicy overuse,
            OverusePolicy unlimited,
            MeterRegistry metrics,
            LongSupplier nanoTime) {
        this.reports = reports;
        this.ledger = ledger;
        this.cluster = cluster;
        this.evictions = evictions;
        this.nanoTime = nanoTime;
        this.ended = EnumSet.noneOf(Kind.class);
        if (overuse == OverusePolicy.EVICT) {
            ended.add(Kind.OVERUSE);
        }
        if (unlimited == OverusePolicy.EVICT) {
            ended.add(Kind.COVERED);
            ended.add(Kind.WITHOUT_SHIM);
        }
        Gauge.builder("aliquot.overuse.pods", this, monitor -> monitor.pods(Kind.OVERUSE))
                .description("Pods with a container that uses more GPU memory than its limit")
                .register(metrics);
        unlimitedPods(metrics, Kind.COVERED, "covered");
        unlimitedPods(metrics, Kind.WITHOUT_SHIM, "without_shim");
    }

    private void unlimitedPods(MeterRegistry metrics, Kind kind, String reason) {
        Gauge.builder("aliquot.unlimited.pods", this, monitor -> monitor.pods(kind))
                .description("Pods with a program on a GPU to which its container's limits do not apply")
                .tag("reason", reason)
                .register(metrics);
    }

    private long pods(Kind kind) {
        return pods.getOrDefault(kind, 0L);
    }

    /** One run, every few seconds. */
    public void check() {
        if (!(cluster.leadership() instanceof Leads)) {
            pods = Map.of();
            gone.clear();
            return;
        }
        var findings = new ArrayList<Finding>();
        for (UsageReport report : reports.get()) {
            if (report.containers().stream().anyMatch(OveruseMonitor::mayBeWrong)
                    || !report.findings().isEmpty()) {
                ledger.view(report.node()).ifPresent(node -> check(report, node, findings));
            }
        }
        pods = Arrays.stream(Kind.values())
                .collect(Collectors.toMap(
                        Function.identity(),
                        kind -> findings.stream()
                                .filter(finding -> finding.kind == kind)
                                .map(Finding::uid)
                                .distinct()
                                .count()));
        findings.forEach(finding -> cluster.warn(
                finding.holding.pod(),
                finding.kind.reason,
                finding.container + " " + finding.gpu,
                finding.description));
        // Of several findings about a pod, the first ends it.
        Map<String, Finding> toEnd = new LinkedHashMap<>();
        findings.stream()
                .filter(finding -> ended.contains(finding.kind) && !isJustShrunk(finding))
                .forEach(finding -> toEnd.putIfAbsent(finding.uid(), finding));
        gone.retainAll(toEnd.keySet());
        toEnd.values().stream()
                .filter(finding -> !gone.contains(finding.uid()) && !evictions.isBlocked(finding.uid()))
                .limit(MAX_EVICTIONS_PER_RUN)
                .forEach(this::end);
    }

    private boolean isJustShrunk(Finding finding) {
        OptionalLong shrunkAt = finding.holding.shrunkAt();
        return finding.kind == Kind.OVERUSE
                && shrunkAt.isPresent()
                && nanoTime.getAsLong() - shrunkAt.getAsLong() < AFTER_RESIZE.toNanos();
    }

    private static boolean mayBeWrong(OfContainer use) {
        return sustainedMiB(use) > SMALLEST_TOLERANCE_MIB;
    }

    private void check(UsageReport report, NodeView node, List<Finding> findings) {
        Map<String, Holding> held = node.holdings().stream()
                .filter(holding -> holding.state() == Holding.State.HELD)
                .collect(Collectors.toMap(holding -> holding.pod().uid(), Function.identity()));
        for (OfContainer use : report.containers()) {
            Holding holding = held.get(use.container().uid());
            if (holding != null && mayBeWrong(use)) {
                limitMiB(holding, use).ifPresent(limitMiB -> check(holding, use, limitMiB, findings));
            }
        }
        for (UsageReport.Finding found : report.findings()) {
            Holding holding = held.get(found.container().uid());
            String container = found.container().container();
            if (holding != null && vgpus(holding, container).anyMatch(vgpu -> !vgpu.exclusive())) {
                unlimited(holding, container, found.problem()).ifPresent(findings::add);
            }
        }
    }

    /** Empty for what {@link ContainerEvents} writes about. */
    private static Optional<Finding> unlimited(Holding holding, String name, Problem problem) {
        String container = "container " + name;
        return switch (problem) {
            case Problem.LimitsNotSeen(String path) ->
                Optional.of(new Finding(
                        holding,
                        name,
                        "",
                        Kind.COVERED,
                        container + " does not see its limits: at " + path
                                + " a program finds another file than Aliquot's, or none"));
            case Problem.WithoutShim(String gpu) ->
                Optional.of(new Finding(
                        holding,
                        name,
                        gpu,
                        Kind.WITHOUT_SHIM,
                        container + " runs a program on " + gpu
                                + " that cannot be limited, because the shim is not in it: it is static, its dynamic loader"
                                + " does not read /etc/ld.so.preload, or it uses the GPU without CUDA; use an image with"
                                + " glibc (Debian, Ubuntu, UBI; not Alpine, not Nix) or request a whole GPU"));
            default -> Optional.empty();
        };
    }

    private static void check(Holding holding, OfContainer use, long limitMiB, List<Finding> findings) {
        long usedMiB = sustainedMiB(use);
        if (usedMiB > limitMiB + tolerance(limitMiB)) {
            findings.add(new Finding(
                    holding,
                    use.container().container(),
                    use.gpu(),
                    Kind.OVERUSE,
                    "container " + use.container().container() + " uses " + usedMiB + " MiB of " + use.gpu()
                            + (limitMiB == 0 ? " and holds no share of it" : ", its limit is " + limitMiB + " MiB")));
        }
    }

    private static long sustainedMiB(OfContainer use) {
        return use.sustainedBytes().orElse(0) / MIB;
    }

    /** What contexts and loaded code take before the shim knows of it. */
    private static long tolerance(long limitMiB) {
        return Math.max(SMALLEST_TOLERANCE_MIB, limitMiB / TOLERANCE_FRACTION);
    }

    /** What the container may use of the GPU by the ledger: 0 without a share of it; empty if it has the whole of it. */
    private static OptionalLong limitMiB(Holding holding, OfContainer use) {
        List<Vgpu> held = vgpus(holding, use.container().container())
                .filter(vgpu -> vgpu.uuid().equals(use.gpu()))
                .toList();
        return held.stream().anyMatch(Vgpu::exclusive)
                ? OptionalLong.empty()
                : OptionalLong.of(held.stream().mapToLong(Vgpu::memoryMiB).sum());
    }

    private static Stream<Vgpu> vgpus(Holding holding, String container) {
        return holding.shares().stream()
                .filter(share -> share.container().equals(container))
                .flatMap(share -> share.vgpus().list().stream());
    }

    private void end(Finding finding) {
        PodId pod = finding.holding.pod();
        switch (evictions.end(pod, finding.kind.cause)) {
            case EvictOutcome.Done done -> {
                gone.add(pod.uid());
                LOG.warn("ended {}: {}", pod, finding.description);
                cluster.note(pod, "Evicted", "ended because " + finding.description);
            }
            case EvictOutcome.Gone already -> gone.add(pod.uid());
            case EvictOutcome.Protected(String why) -> cannotEnd(finding, why);
            case EvictOutcome.Failed(String why) -> cannotEnd(finding, why);
        }
    }

    private void cannotEnd(Finding finding, String why) {
        cluster.warn(finding.holding.pod(), finding.kind.reason, "cannot be ended: " + why);
    }
}
