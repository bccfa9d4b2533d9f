package io.aliquot.deviceplugin.usage;

import io.aliquot.api.Inventory;
import io.aliquot.api.UnchargedUse;
import io.aliquot.api.Vgpu;
import io.aliquot.deviceplugin.kubelet.ContainerFiles;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import io.aliquot.deviceplugin.nvml.GpuUsage;
import io.aliquot.deviceplugin.nvml.NvmlException;
import io.aliquot.deviceplugin.usage.HostProcesses.HostProcess;
import io.aliquot.deviceplugin.usage.Regions.Claim;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Attributes NVML's figures to containers, and compares them with what the shim has charged. A process belongs to the
 * container whose cgroup it is in; a container's region is that of its slot. Nothing is guessed: a process whose container
 * is not known counts as one outside of all shares.
 *
 * <p>Thread-safe; {@link #sample} is for one thread.
 */
public final class UsageTracker {
    /** Older figures are those of an NVML that no longer answers. */
    private static final Duration VALID = Duration.ofSeconds(10);

    /** How far a process's utilization reaches back at its first sample. */
    private static final long FIRST_PERIOD_MICROS = 1_000_000;

    /** Uncharged memory is reported when it has lasted this long. */
    private static final Duration LASTS = Duration.ofSeconds(10);

    /** More than CUDA takes for a process without the shim's knowledge: 500 MiB were seen on an H100. */
    private static final long BYTES_PER_PROCESS = 640L << 20;

    private static final long MIB = 1L << 20;
    private static final double MICROS_PER_SECOND = 1e6;
    private static final double NANOS_PER_SECOND = 1e9;
    private static final long NANOS_PER_MILLI = 1_000_000;

    /** Where NVML's figures come from. */
    public interface Source {
        /** See {@link io.aliquot.deviceplugin.nvml.Nvml#usage}. */
        List<GpuUsage> usage(Map<String, Long> since) throws NvmlException;
    }

    private final HostProcesses processes;
    private final ContainerNames names;
    private final SlotHolders slotHolders;
    private final Regions regions;
    private final AgentFiles agentFiles;
    private final LongSupplier nanoTime;

    private final Map<Key, Counters> counters = new HashMap<>();

    /** By GPU, the end of the latest period of utilization. */
    private final Map<String, Long> utilizationUntil = new HashMap<>();

    private long lastSampleAt;
    private volatile NodeUsage latest = NodeUsage.NONE;
    private volatile List<UnchargedUse> uncharged = List.of();
    private volatile long latestAt;

    /**
     * Creates a tracker without a sample.
     *
     * @param proc {@code /proc} of the host's PID namespace
     * @param containerLogs the kubelet's links to the logs of containers
     * @param stateDir Aliquot's folder on the host
     * @param podResources asks the kubelet which containers hold slots
     * @param nanoTime {@link System#nanoTime}, which is {@code CLOCK_MONOTONIC} on Linux
     */
    public UsageTracker(
            Path proc, Path containerLogs, Path stateDir, Supplier<DeviceHolders> podResources, LongSupplier nanoTime) {
        processes = new HostProcesses(proc);
        names = new ContainerNames(containerLogs);
        slotHolders = new SlotHolders(podResources, nanoTime);
        regions = new Regions(ContainerFiles.regionsFolder(stateDir));
        agentFiles = new AgentFiles(ContainerFiles.agentFolder(stateDir));
        this.nanoTime = nanoTime;
    }

    /** The latest sample; without figures if there was none for some seconds. */
    public NodeUsage usage() {
        return nanoTime.getAsLong() - latestAt > VALID.toNanos() ? NodeUsage.NONE : latest;
    }

    /**
     * Containers that have used, for some seconds, much more memory than the shim has charged, and more than CUDA takes for
     * itself. Only the scheduler knows whether that is beyond their limits. A container that falsifies its region can
     * avoid being listed.
     */
    public List<UnchargedUse> uncharged() {
        return uncharged;
    }

    /**
     * Takes a sample, once a second. NVML and a region are not read at the same instant, so the region is read before and
     * after, and the larger charge counts; of two samples, the smaller unattributed memory counts.
     */
    void sample(Source source) throws NvmlException {
        Map<ContainerName, String> slots = slotHolders.current();
        Map<ContainerName, Map<String, Claim>> before = claims(slots);
        long now = nanoTime.getAsLong();
        long sinceLast = (now - lastSampleAt) / 1000;
        List<GpuUsage> gpus = source.usage(Map.copyOf(utilizationUntil));
        lastSampleAt = now;
        Map<ContainerName, Map<String, Claim>> after = claims(slots);

        Set<Integer> pids = new HashSet<>();
        List<NodeUsage.OfGpu> ofGpus = new ArrayList<>();
        List<NodeUsage.OfContainer> ofContainers = new ArrayList<>();
        Set<Key> present = new HashSet<>();
        for (GpuUsage gpu : gpus) {
            gpu.processes().forEach(process -> pids.add(process.pid()));
            Map<ContainerName, Processes> byContainer = new TreeMap<>();
            long other = attribute(gpu, byContainer);
            long shared =
                    byContainer.values().stream().mapToLong(use -> use.bytes).sum();
            addGpuTime(gpu, byContainer, sinceLast);
            ofGpus.add(new NodeUsage.OfGpu(gpu, shared, other));
            idleHolders(gpu, slots.keySet(), after).forEach(idle -> byContainer.putIfAbsent(idle, new Processes()));
            byContainer.forEach((container, use) -> {
                var key = new Key(container, gpu.uuid());
                present.add(key);
                NodeUsage.OfContainer ofContainer =
                        ofContainer(key, use, claim(before, container, gpu), claim(after, container, gpu));
                ofContainers.add(ofContainer);
                tell(Optional.ofNullable(slots.get(container)), ofContainer, now);
            });
        }
        counters.keySet().retainAll(present);
        processes.retain(pids);
        uncharged = ofContainers.stream()
                .map(use -> uncharged(use, now))
                .flatMap(Optional::stream)
                .limit(Inventory.MOST_UNCHARGED)
                .toList();
        latest = new NodeUsage(ofGpus, ofContainers);
        latestAt = now;
    }

    private Optional<UnchargedUse> uncharged(NodeUsage.OfContainer use, long now) {
        Counters counted = counters(new Key(use.container(), use.uuid()), null);
        long bytes = use.unattributedBytes().orElse(0);
        if (bytes <= use.processes() * BYTES_PER_PROCESS) {
            counted.uncharged = null;
            return Optional.empty();
        }
        long usedMiB = (bytes + use.chargedBytes().orElse(0)) / MIB;
        Uncharged known = counted.uncharged;
        if (known == null || Math.abs(known.usedMiB - usedMiB) > known.usedMiB / 10) {
            // The reported figure follows large changes only, so that the inventory is not written all the time.
            known = new Uncharged(known == null ? now : known.since, usedMiB);
            counted.uncharged = known;
        }
        return now - known.since < LASTS.toNanos()
                ? Optional.empty()
                : Optional.of(new UnchargedUse(
                        use.container().namespace() + "/" + use.container().pod(),
                        use.container().container(),
                        use.uuid(),
                        (int) Math.min(known.usedMiB, Vgpu.LARGEST_MIB)));
    }

    /** Tells the container's processes what they use beyond their charges. */
    private void tell(Optional<String> slot, NodeUsage.OfContainer use, long now) {
        if (slot.isPresent() && use.unattributedBytes().isPresent()) {
            agentFiles.write(slot.get(), use.uuid(), use.unattributedBytes().getAsLong(), now / NANOS_PER_MILLI);
        }
    }

    private Map<ContainerName, Map<String, Claim>> claims(Map<ContainerName, String> slots) {
        Map<ContainerName, Map<String, Claim>> claims = new HashMap<>();
        slots.forEach((container, slot) -> regions.read(slot).ifPresent(read -> claims.put(container, read)));
        return claims;
    }

    /** What a container's region says of a GPU; empty if its region is not known. */
    private static Optional<Claim> claim(
            Map<ContainerName, Map<String, Claim>> claims, ContainerName container, GpuUsage gpu) {
        return Optional.ofNullable(claims.get(container)).map(byGpu -> byGpu.getOrDefault(gpu.uuid(), Claim.NONE));
    }

    /** Adds a GPU's processes to their containers; returns the memory of the other processes. */
    private long attribute(GpuUsage gpu, Map<ContainerName, Processes> byContainer) {
        long other = 0;
        for (GpuUsage.GpuProcess process : gpu.processes()) {
            Optional<HostProcess> host = processes.find(process.pid());
            Optional<ContainerName> holder =
                    host.flatMap(HostProcess::container).flatMap(names::find).filter(slotHolders::holdsVgpu);
            if (host.isPresent() && holder.isPresent()) {
                byContainer
                        .computeIfAbsent(holder.get(), name -> new Processes())
                        .add(process, host.get());
            } else {
                other += process.bytes().orElse(0);
            }
        }
        return other;
    }

    private void addGpuTime(GpuUsage gpu, Map<ContainerName, Processes> byContainer, long sinceLast) {
        Long until = utilizationUntil.get(gpu.uuid());
        long latestEnd = until == null ? 0 : until;
        for (GpuUsage.Utilization sample : gpu.utilization()) {
            long period = until == null ? FIRST_PERIOD_MICROS : Math.max(0, sample.endMicros() - until);
            byContainer.forEach((container, use) -> {
                if (use.pids.containsKey(sample.pid())) {
                    counters(new Key(container, gpu.uuid()), use.id).gpuSeconds +=
                            period / MICROS_PER_SECOND * sample.percent() / 100;
                }
            });
            latestEnd = Math.max(latestEnd, sample.endMicros());
        }
        if (gpu.utilization().isEmpty() && until != null) {
            latestEnd = until + sinceLast; // idle until now; the next period must not reach back over this one
        }
        if (latestEnd > 0) {
            utilizationUntil.put(gpu.uuid(), latestEnd);
        }
    }

    /** Containers that have used a GPU, or say so, and have no process on it now. */
    private List<ContainerName> idleHolders(
            GpuUsage gpu, Set<ContainerName> holders, Map<ContainerName, Map<String, Claim>> claims) {
        return holders.stream()
                .filter(container -> counters.containsKey(new Key(container, gpu.uuid()))
                        || claims.getOrDefault(container, Map.of()).containsKey(gpu.uuid()))
                .toList();
    }

    private NodeUsage.OfContainer ofContainer(Key key, Processes use, Optional<Claim> before, Optional<Claim> after) {
        Counters counted = counters(key, use.id);
        OptionalLong charged = before.isPresent() && after.isPresent()
                ? OptionalLong.of(Math.max(use.charged(before.get()), use.charged(after.get())))
                : OptionalLong.empty();
        OptionalLong unattributed = OptionalLong.empty();
        if (use.known) {
            long now = Math.max(0, use.bytes - charged.orElse(0));
            unattributed = OptionalLong.of(Math.min(now, counted.unattributedBefore));
            counted.unattributedBefore = now;
        }
        counted.peak = Math.max(counted.peak, charged.orElse(0) + unattributed.orElse(0));
        return new NodeUsage.OfContainer(
                key.container,
                key.uuid,
                charged,
                unattributed,
                counted.peak,
                counted.gpuSeconds,
                after.map(Claim::throttledNanos).orElse(0L) / NANOS_PER_SECOND,
                use.pids.size());
    }

    /** The counters of a container on a GPU, from 0 if the container has been restarted. */
    private Counters counters(Key key, @Nullable ContainerId id) {
        Counters known = counters.computeIfAbsent(key, unused -> new Counters());
        if (id != null && known.id != null && !id.equals(known.id)) {
            known = new Counters();
            counters.put(key, known);
        }
        if (id != null) {
            known.id = id;
        }
        return known;
    }

    private record Key(ContainerName container, String uuid) {}

    private static final class Counters {
        private @Nullable ContainerId id;
        private long unattributedBefore;
        private long peak;
        private double gpuSeconds;
        private @Nullable Uncharged uncharged;
    }

    /** Much uncharged memory of a container: since when, and how much it used then or at the last large change. */
    private record Uncharged(long since, long usedMiB) {}

    /** The processes of one container on one GPU. */
    private static final class Processes {
        /** PIDs in the container by those on the host. */
        private final Map<Integer, Integer> pids = new HashMap<>();

        private long bytes;
        private boolean known = true;
        private @Nullable ContainerId id;

        void add(GpuUsage.GpuProcess process, HostProcess host) {
            pids.put(process.pid(), host.pidInContainer());
            bytes += process.bytes().orElse(0);
            known &= process.bytes().isPresent();
            id = host.container().orElse(null);
        }

        /** The charges of these processes; those of dead ones stay in a region until another process removes them. */
        long charged(Claim claim) {
            return claim.chargedBytes().entrySet().stream()
                    .filter(charge -> charge.getKey() == 0 || pids.containsValue(charge.getKey()))
                    .mapToLong(Map.Entry::getValue)
                    .sum();
        }
    }
}
