package io.aliquot.deviceplugin.usage;

import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.deviceplugin.attribution.ContainerName;
import io.aliquot.deviceplugin.attribution.Limits;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/*
 * How it is bounded. A container and GPU takes 29 KB for 15 minutes, and as much less as it has run for less. When all
 * together take more than MOST_BYTES, those that have ended keep a value of each ten seconds, then the ones that ended first
 * are dropped; only then the others keep a value of each ten seconds, and at last of each hundred. So what comes and goes
 * takes nothing from what runs, and the figures of now are exact in any case.
 */
/** The use of this node's GPUs now and in each second of the last 15 minutes. Thread-safe. */
public final class RecentUsage implements UsageTracker.SampleListener {
    private static final int SECONDS = UsageHistory.MOST_VALUES;

    /** Memory that was used for this long is not an allocation that was about to be refused or freed. */
    private static final int SUSTAINED_SECONDS = 10;

    /** Of the heap of 32 MB. Of 200 containers and GPUs each second is kept. */
    static final long MOST_BYTES = 6 << 20;

    /** Of a container and GPU without its values: names of the greatest length that Kubernetes allows. */
    private static final int BYTES_OF_NAMES = 1 << 10;

    private static final int COARSE_SECONDS = 10;
    private static final int COARSEST_SECONDS = 100;

    /** Older figures are those of an NVML that no longer answers. */
    private static final Duration VALID = Duration.ofSeconds(10);

    private static final double NANOS_PER_SECOND = 1e9;
    private static final double MILLIWATTS_PER_WATT = 1e3;
    private static final long MIB = 1L << 20;

    /**
     * GPU time of a container and a GPU since the container's first sample.
     *
     * @param lentSeconds of its cores that others have used, see {@link Lending}
     * @param borrowedSeconds that it has used beyond its cores
     */
    public record Lent(double lentSeconds, double borrowedSeconds) {}

    private final Supplier<Limits> latestLimits;
    private final InstantSource clock;
    private final LongSupplier nanoTime;
    private final long start;

    private final Map<Key, OfContainer> containers = new HashMap<>();

    private final Map<String, OfGpu> gpus = new HashMap<>();

    /** What is given up one after the other while the history is too large. */
    private enum Loss {
        SECONDS_OF_ENDED(true),
        ALL_OF_ENDED(true),
        SECONDS(false),
        MORE_SECONDS(false);

        private final boolean ofEnded;

        Loss(boolean ofEnded) {
            this.ofEnded = ofEnded;
        }
    }

    private record Key(String gpu, ContainerName container) {}

    private NodeUsage latest = NodeUsage.NONE;
    private Instant latestAt = Instant.EPOCH;
    private long latestNanos;

    /**
     * Creates a history without a sample.
     *
     * @param latestLimits what the scheduler said last of this node
     * @param clock for the times in reports
     * @param nanoTime a clock such as {@link System#nanoTime}, for the distance between samples
     */
    public RecentUsage(Supplier<Limits> latestLimits, InstantSource clock, LongSupplier nanoTime) {
        this.latestLimits = latestLimits;
        this.clock = clock;
        this.nanoTime = nanoTime;
        start = nanoTime.getAsLong();
        latestNanos = start - VALID.toNanos() - 1;
    }

    /** Adds a sample; at most one a second is kept. */
    @Override
    public synchronized void add(NodeUsage usage) {
        long now = nanoTime.getAsLong();
        long second = second(now);
        double elapsed = latestAt.equals(Instant.EPOCH) ? 1 : (now - latestNanos) / NANOS_PER_SECOND;
        latest = usage;
        latestAt = clock.instant();
        latestNanos = now;
        for (NodeUsage.OfGpu gpu : usage.gpus()) {
            gpus.computeIfAbsent(gpu.nvml().uuid(), uuid -> new OfGpu()).add(second, gpu);
        }
        Limits limits = latestLimits.get();
        Map<String, Lending> lending = new HashMap<>();
        for (NodeUsage.OfContainer use : usage.containers()) {
            lending.computeIfAbsent(use.uuid(), uuid -> new Lending())
                    .add(use.limit(limits), use.utilization().orElse(0));
        }
        for (NodeUsage.OfContainer use : usage.containers()) {
            Lending onGpu = Objects.requireNonNull(lending.get(use.uuid()));
            containers
                    .compute(
                            new Key(use.uuid(), use.container()),
                            (key, known) -> known == null || known.isOfAnotherPod(use) ? new OfContainer() : known)
                    .add(second, elapsed, use, use.limit(limits), onGpu, latestAt);
        }
        containers.values().removeIf(known -> known.values.last() <= second - SECONDS);
        gpus.values().removeIf(known -> known.values.last() <= second - SECONDS);
        shrink(second);
    }

    private void shrink(long second) {
        long bytes = bytes();
        List<Map.Entry<Key, OfContainer>> oldestFirst = bytes <= MOST_BYTES ? List.of() : oldestFirst();
        for (Loss loss : Loss.values()) {
            for (Map.Entry<Key, OfContainer> one : oldestFirst) {
                if (bytes <= MOST_BYTES) {
                    return;
                }
                OfContainer known = one.getValue();
                if (known.values.last() < second == loss.ofEnded) {
                    bytes -= known.bytes();
                    if (loss == Loss.ALL_OF_ENDED) {
                        containers.remove(one.getKey());
                    } else {
                        known.values.coarsen(loss == Loss.MORE_SECONDS ? COARSEST_SECONDS : COARSE_SECONDS);
                        bytes += known.bytes();
                    }
                }
            }
        }
    }

    private List<Map.Entry<Key, OfContainer>> oldestFirst() {
        return containers.entrySet().stream()
                .sorted(Comparator.comparingLong(one -> one.getValue().values.last()))
                .toList();
    }

    /** What the containers' history takes, estimated. */
    synchronized long bytes() {
        return containers.values().stream().mapToLong(OfContainer::bytes).sum();
    }

    /** The latest sample; without figures if there was none for some seconds. */
    public synchronized NodeUsage latest() {
        return isOld() ? NodeUsage.NONE : latest;
    }

    /** What a container of the latest sample has lent and borrowed; empty if its limit is not known. */
    public synchronized Optional<Lent> lent(ContainerName container, String gpu) {
        return Optional.ofNullable(containers.get(new Key(gpu, container)))
                .filter(known -> known.values.latest(OfContainer.LENT).isPresent())
                .map(known -> new Lent(known.lentSeconds, known.borrowedSeconds));
    }

    private boolean isOld() {
        return nanoTime.getAsLong() - latestNanos > VALID.toNanos();
    }

    /** The latest sample for the scheduler; empty while NVML does not answer. */
    public synchronized Optional<UsageReport> report(
            String node, List<UsageReport.ApplicationXid> xids, List<UsageReport.Finding> findings) {
        if (isOld()) {
            return Optional.empty();
        }
        long second = second(latestNanos);
        return Optional.of(new UsageReport(
                latestAt,
                node,
                latest.containers().stream()
                        .limit(UsageReport.MOST_CONTAINERS)
                        .map(use -> find(use).report(use, second))
                        .toList(),
                latest.gpus().stream()
                        .limit(UsageReport.MOST_GPUS)
                        .map(RecentUsage::report)
                        .toList(),
                xids,
                findings,
                Optional.empty()));
    }

    /**
     * The use of a GPU in the last 15 minutes; empty if the GPU is not known.
     *
     * @param health the changes of its health
     */
    public synchronized Optional<UsageHistory> history(String gpu, List<UsageHistory.HealthChange> health) {
        OfGpu known = gpus.get(gpu);
        if (known == null) {
            return Optional.empty();
        }
        long end = second(nanoTime.getAsLong());
        List<UsageHistory.OfContainer> series = new ArrayList<>();
        containers.entrySet().stream()
                .filter(one -> one.getKey().gpu.equals(gpu))
                .sorted(Comparator.<Map.Entry<Key, OfContainer>>comparingLong(
                                one -> -one.getValue().values.last())
                        .thenComparing(one -> one.getKey().container))
                .limit(UsageHistory.MOST_CONTAINERS)
                .forEach(one -> series.add(one.getValue().history(one.getKey().container, end)));
        return Optional.of(new UsageHistory(
                clock.instant(),
                1,
                new UsageHistory.OfGpu(known.values.until(end, OfGpu.USED), known.values.until(end, OfGpu.UTILIZATION)),
                series,
                health));
    }

    private OfContainer find(NodeUsage.OfContainer use) {
        return Objects.requireNonNull(containers.get(new Key(use.uuid(), use.container())), "each sample is recorded");
    }

    private long second(long nanos) {
        return (long) ((nanos - start) / NANOS_PER_SECOND);
    }

    private static UsageReport.OfGpu report(NodeUsage.OfGpu use) {
        return new UsageReport.OfGpu(
                use.nvml().uuid(),
                OptionalLong.of(use.sharedBytes() + use.otherBytes()),
                OptionalLong.of(use.otherBytes()),
                use.nvml().utilizationPercent(),
                use.nvml().temperatureCelsius(),
                use.nvml().powerMilliwatts().stream()
                        .mapToDouble(milliwatts -> milliwatts / MILLIWATTS_PER_WATT)
                        .findFirst());
    }

    private static final class OfGpu {
        private static final int USED = 0;
        private static final int UTILIZATION = 1;

        private final ValueHistory values = new ValueHistory(2, SECONDS);

        void add(long second, NodeUsage.OfGpu use) {
            values.put(
                    second,
                    mib(OptionalLong.of(use.sharedBytes() + use.otherBytes())),
                    use.nvml().utilizationPercent());
        }
    }

    private static final class OfContainer {
        private static final int CHARGED = 0;
        private static final int UNATTRIBUTED = 1;
        private static final int UTILIZATION = 2;
        private static final int GRANTED_MEMORY = 3;
        private static final int GRANTED_CORES = 4;
        private static final int LENT = 5;
        private static final int BORROWED = 6;

        private final ValueHistory values = new ValueHistory(BORROWED + 1, SECONDS);

        /** By NVML: what the container says of itself does not change it. */
        private final ValueHistory used = new ValueHistory(1, SUSTAINED_SECONDS);

        private double lentSeconds;
        private double borrowedSeconds;
        private String podUid = "";
        private int processes;
        private Optional<Instant> lastActive = Optional.empty();

        boolean isOfAnotherPod(NodeUsage.OfContainer use) {
            return !podUid.isEmpty() && !use.podUid().isEmpty() && !podUid.equals(use.podUid());
        }

        void add(
                long second,
                double elapsed,
                NodeUsage.OfContainer use,
                Optional<Limit> limit,
                Lending lending,
                Instant at) {
            OptionalInt usedBefore = used.latest(0);
            used.put(second, mib(use.nvmlBytes()));
            boolean known = limit.isPresent() && use.utilization().isPresent();
            double lends = lending.lent(limit, use.utilization().orElse(0));
            double borrows = lending.borrowed(limit, use.utilization().orElse(0));
            values.put(
                    second,
                    mib(use.chargedBytes()),
                    mib(use.unattributedBytes()),
                    wholePercent(use.utilization()),
                    mib(limit.stream().mapToLong(of -> of.memoryMiB() * MIB).findFirst()),
                    limit.map(Limit::ownCores).orElse(OptionalInt.empty()),
                    known ? wholePercent(OptionalDouble.of(lends)) : OptionalInt.empty(),
                    known ? wholePercent(OptionalDouble.of(borrows)) : OptionalInt.empty());
            lentSeconds += lends * elapsed;
            borrowedSeconds += borrows * elapsed;
            if (use.utilization().orElse(0) > 0
                    || use.processes() != processes
                    || !used.latest(0).equals(usedBefore)) {
                lastActive = Optional.of(at);
            }
            podUid = use.podUid().isEmpty() ? podUid : use.podUid();
            processes = use.processes();
        }

        int bytes() {
            return BYTES_OF_NAMES + values.bytes();
        }

        UsageReport.OfContainer report(NodeUsage.OfContainer use, long second) {
            OptionalInt sustained = used.smallest(0, second, SUSTAINED_SECONDS);
            return new UsageReport.OfContainer(
                    use.container().ofPod(podUid),
                    use.uuid(),
                    use.chargedBytes(),
                    use.unattributedBytes(),
                    sustained.isPresent() ? OptionalLong.of(sustained.getAsInt() * MIB) : OptionalLong.empty(),
                    use.peakBytes(),
                    use.gpuSeconds(),
                    values.latest(UTILIZATION),
                    values.latest(LENT),
                    values.latest(BORROWED),
                    use.throttledSeconds(),
                    use.denied(),
                    use.processes(),
                    lastActive);
        }

        UsageHistory.OfContainer history(ContainerName name, long end) {
            return new UsageHistory.OfContainer(
                    name.ofPod(podUid),
                    values.until(end, CHARGED),
                    values.until(end, UNATTRIBUTED),
                    values.until(end, UTILIZATION),
                    values.until(end, GRANTED_MEMORY),
                    values.until(end, GRANTED_CORES),
                    values.until(end, LENT),
                    values.until(end, BORROWED));
        }
    }

    private static OptionalInt wholePercent(OptionalDouble part) {
        return part.isPresent() ? OptionalInt.of((int) Math.round(part.getAsDouble() * 100)) : OptionalInt.empty();
    }

    private static OptionalInt mib(OptionalLong bytes) {
        return bytes.isPresent()
                ? OptionalInt.of((int) Math.min(bytes.getAsLong() / MIB, Integer.MAX_VALUE))
                : OptionalInt.empty();
    }
}
