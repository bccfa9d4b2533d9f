package io.aliquot.deviceplugin.usage;

import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageReport;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/**
 * The use of this node's GPUs now and in each second of the last 15 minutes. Takes 29 KB for each container and GPU.
 * Thread-safe.
 */
public final class RecentUsage implements UsageTracker.SampleListener {
    private static final int SECONDS = UsageHistory.MOST_VALUES;

    /** Memory that was used for this long is not an allocation that was about to be refused or freed. */
    private static final int SUSTAINED_SECONDS = 10;

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

    /** By GPU, and there by container. */
    private final Map<String, Map<ContainerName, OfContainer>> containers = new HashMap<>();

    private final Map<String, OfGpu> gpus = new HashMap<>();
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
                    .add(limits.find(use), use.utilization().orElse(0));
        }
        for (NodeUsage.OfContainer use : usage.containers()) {
            Lending onGpu = Objects.requireNonNull(lending.get(use.uuid()));
            containers
                    .computeIfAbsent(use.uuid(), uuid -> new TreeMap<>())
                    .compute(
                            use.container(),
                            (name, known) -> known == null || known.isOfAnotherPod(use) ? new OfContainer() : known)
                    .add(second, elapsed, use, limits.find(use), onGpu, latestAt);
        }
        containers.values().forEach(byName -> byName.values().removeIf(known -> known.used.endsBefore(second)));
    }

    /** The latest sample; without figures if there was none for some seconds. */
    public synchronized NodeUsage latest() {
        return isOld() ? NodeUsage.NONE : latest;
    }

    /** What a container of the latest sample has lent and borrowed; empty if its limit is not known. */
    public synchronized Optional<Lent> lent(ContainerName container, String gpu) {
        return Optional.ofNullable(containers.getOrDefault(gpu, Map.of()).get(container))
                .filter(known -> known.lent.latest().isPresent())
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
        containers.getOrDefault(gpu, Map.of()).entrySet().stream()
                .sorted(Comparator.comparingLong(one -> -one.getValue().used.last))
                .limit(UsageHistory.MOST_CONTAINERS)
                .forEach(one -> series.add(one.getValue().history(one.getKey(), end)));
        return Optional.of(new UsageHistory(
                clock.instant(),
                1,
                new UsageHistory.OfGpu(known.used.until(end), known.utilization.until(end)),
                series,
                health));
    }

    private OfContainer find(NodeUsage.OfContainer use) {
        return Objects.requireNonNull(
                containers.getOrDefault(use.uuid(), Map.of()).get(use.container()), "each sample is recorded");
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
        private final Series used = new Series();
        private final Series utilization = new Series();

        void add(long second, NodeUsage.OfGpu use) {
            used.put(second, mib(OptionalLong.of(use.sharedBytes() + use.otherBytes())));
            utilization.put(second, use.nvml().utilizationPercent());
        }
    }

    private static final class OfContainer {
        /** By NVML: what the container says of itself does not change it. */
        private final Series used = new Series();

        private final Series charged = new Series();
        private final Series unattributed = new Series();
        private final Series utilization = new Series();
        private final Series grantedMemory = new Series();
        private final Series grantedCores = new Series();
        private final Series lent = new Series();
        private final Series borrowed = new Series();
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
            OptionalInt usedBefore = used.latest();
            used.put(second, mib(use.nvmlBytes()));
            charged.put(second, mib(use.chargedBytes()));
            unattributed.put(second, mib(use.unattributedBytes()));
            utilization.put(second, wholePercent(use.utilization()));
            grantedMemory.put(
                    second,
                    mib(limit.stream().mapToLong(of -> of.memoryMiB() * MIB).findFirst()));
            grantedCores.put(second, limit.map(Limit::ownCores).orElse(OptionalInt.empty()));
            addLending(second, elapsed, limit.isPresent() ? use.utilization() : OptionalDouble.empty(), limit, lending);
            if (use.utilization().orElse(0) > 0
                    || use.processes() != processes
                    || !used.latest().equals(usedBefore)) {
                lastActive = Optional.of(at);
            }
            podUid = use.podUid().isEmpty() ? podUid : use.podUid();
            processes = use.processes();
        }

        private void addLending(
                long second, double elapsed, OptionalDouble used, Optional<Limit> limit, Lending lending) {
            double lends = lending.lent(limit, used.orElse(0));
            double borrows = lending.borrowed(limit, used.orElse(0));
            lentSeconds += lends * elapsed;
            borrowedSeconds += borrows * elapsed;
            lent.put(second, used.isPresent() ? wholePercent(OptionalDouble.of(lends)) : OptionalInt.empty());
            borrowed.put(second, used.isPresent() ? wholePercent(OptionalDouble.of(borrows)) : OptionalInt.empty());
        }

        UsageReport.OfContainer report(NodeUsage.OfContainer use, long second) {
            OptionalInt sustained = used.smallest(second, SUSTAINED_SECONDS);
            return new UsageReport.OfContainer(
                    use.container().ofPod(podUid),
                    use.uuid(),
                    use.chargedBytes(),
                    use.unattributedBytes(),
                    sustained.isPresent() ? OptionalLong.of(sustained.getAsInt() * MIB) : OptionalLong.empty(),
                    use.peakBytes(),
                    use.gpuSeconds(),
                    utilization.latest(),
                    lent.latest(),
                    borrowed.latest(),
                    use.throttledSeconds(),
                    use.denied(),
                    use.processes(),
                    lastActive,
                    use.unlimited());
        }

        UsageHistory.OfContainer history(ContainerName name, long end) {
            return new UsageHistory.OfContainer(
                    name.ofPod(podUid),
                    charged.until(end),
                    unattributed.until(end),
                    utilization.until(end),
                    grantedMemory.until(end),
                    grantedCores.until(end),
                    lent.until(end),
                    borrowed.until(end));
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

    /** A value for each of the last 900 seconds. */
    private static final class Series {
        private static final int ABSENT = -1;

        private final int[] values = new int[SECONDS];

        /** The second of the latest value. */
        private long last = -1;

        Series() {
            Arrays.fill(values, ABSENT);
        }

        void put(long second, OptionalInt value) {
            // Samples are a little more than a second apart, so now and then a second has none.
            int between = last >= 0 && second - last == 2 ? value.orElse(ABSENT) : ABSENT;
            for (long skipped = Math.max(last + 1, second - SECONDS); skipped < second; skipped++) {
                values[index(skipped)] = between;
            }
            values[index(second)] = value.orElse(ABSENT);
            last = second;
        }

        OptionalInt latest() {
            return last < 0 ? OptionalInt.empty() : at(last);
        }

        boolean endsBefore(long second) {
            return last <= second - SECONDS;
        }

        /** The smallest of the latest values; empty if one is unknown. */
        OptionalInt smallest(long end, int count) {
            int smallest = Integer.MAX_VALUE;
            for (long second = end - count + 1; second <= end; second++) {
                OptionalInt value = at(second);
                if (value.isEmpty()) {
                    return value;
                }
                smallest = Math.min(smallest, value.getAsInt());
            }
            return OptionalInt.of(smallest);
        }

        /** Oldest first. */
        List<OptionalInt> until(long end) {
            var list = new ArrayList<OptionalInt>(SECONDS);
            for (long second = end - SECONDS + 1; second <= end; second++) {
                list.add(at(second));
            }
            return list;
        }

        private OptionalInt at(long second) {
            if (second < 0 || second > last || second <= last - SECONDS) {
                return OptionalInt.empty();
            }
            int value = values[index(second)];
            return value == ABSENT ? OptionalInt.empty() : OptionalInt.of(value);
        }

        private static int index(long second) {
            return (int) (second % SECONDS);
        }
    }
}
