package io.aliquot.deviceplugin.usage;

import io.aliquot.api.format.GpuUuids;
import io.aliquot.api.pods.Held;
import io.aliquot.api.usage.UsageReport.Problem;
import io.aliquot.deviceplugin.attribution.ContainerId;
import io.aliquot.deviceplugin.attribution.ContainerName;
import io.aliquot.deviceplugin.attribution.ContainerNames;
import io.aliquot.deviceplugin.attribution.HostProcesses;
import io.aliquot.deviceplugin.attribution.HostProcesses.HostProcess;
import io.aliquot.deviceplugin.attribution.Limits;
import io.aliquot.deviceplugin.attribution.SlotHolders;
import io.aliquot.deviceplugin.files.SlotFiles;
import io.aliquot.deviceplugin.guard.LimitsCheck;
import io.aliquot.deviceplugin.guard.RecentFindings;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import io.aliquot.deviceplugin.nvml.GpuUsage;
import io.aliquot.deviceplugin.nvml.NvmlException;
import io.aliquot.deviceplugin.usage.Regions.Claim;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * Attributes the processes of nvmlDeviceGetComputeRunningProcesses, their memory and their GPU time to containers, and
 * compares them with what the shim has charged. A process belongs to the container whose cgroup it is in; a container's
 * region is that of its slot. Nothing is guessed: a process whose container is not known counts as one outside of all
 * shares.
 *
 * <p>For one thread.
 */
public final class UsageTracker {
    /** How far a process's utilization reaches back at its first sample. */
    private static final long FIRST_PERIOD_MICROS = 1_000_000;

    /**
     * From the first sight of a process that uses memory and is not in the region. A process that has ended is not in the
     * region any more while the driver still frees its memory.
     */
    private static final Duration UNCOUNTED = Duration.ofSeconds(10);

    /** How often a larger figure is read again. Each reading of NVML takes about a millisecond for each GPU. */
    private static final int CONFIRMATIONS = 4;

    private static final double MICROS_PER_SECOND = 1e6;
    private static final double NANOS_PER_SECOND = 1e9;
    private static final long NANOS_PER_MILLI = 1_000_000;
    private static final long NANOS_PER_MICRO = 1_000;
    private static final Processes NO_PROCESSES = new Processes();

    /** Where NVML's figures come from. */
    public interface Source {
        /** See {@link io.aliquot.deviceplugin.nvml.Nvml#usage}. */
        List<GpuUsage> usage(Map<String, Long> since) throws NvmlException;
    }

    /** Uses what the tracker finds. */
    public interface SampleListener {
        /** Takes note of a sample. */
        void add(NodeUsage usage);
    }

    private final HostProcesses processes;
    private final ContainerNames names;
    private final SlotHolders slotHolders;
    private final Regions regions;
    private final AgentFiles agentFiles;
    private final LimitsCheck limits;
    private final Supplier<Limits> allocation;
    private final RecentFindings findings;
    private final List<SampleListener> listeners;
    private final LongSupplier nanoTime;

    private final Map<Key, Counters> counters = new HashMap<>();

    /** By GPU, the end of the latest period of utilization. */
    private final Map<String, Long> utilizationUntil = new HashMap<>();

    private long lastSampleAt;

    /**
     * Creates a tracker without a sample.
     *
     * @param proc {@code /proc} of the host's PID namespace
     * @param containerLogs the kubelet's links to the logs of containers
     * @param stateDir Aliquot's folder on the host
     * @param files which containers mount
     * @param podResources asks the kubelet which containers hold slots
     * @param allocation what the scheduler said last of this node
     * @param findings gets the containers whose limits do not apply
     * @param listeners receive each sample
     * @param nanoTime {@link System#nanoTime}, which is {@code CLOCK_MONOTONIC} on Linux
     */
    public UsageTracker(
            Path proc,
            Path containerLogs,
            Path stateDir,
            SlotFiles files,
            Supplier<DeviceHolders> podResources,
            Supplier<Limits> allocation,
            RecentFindings findings,
            List<? extends SampleListener> listeners,
            LongSupplier nanoTime) {
        processes = new HostProcesses(proc);
        names = new ContainerNames(containerLogs);
        slotHolders = new SlotHolders(podResources, nanoTime);
        regions = new Regions(files.regions());
        agentFiles = new AgentFiles(files.agentFiles());
        limits = new LimitsCheck(proc, stateDir, processes, nanoTime);
        this.allocation = allocation;
        this.findings = findings;
        this.listeners = List.copyOf(listeners);
        this.nanoTime = nanoTime;
        lastSampleAt = nanoTime.getAsLong() - FIRST_PERIOD_MICROS * NANOS_PER_MICRO;
    }

    /**
     * Takes a sample, once a second. NVML and a region are not read at the same instant, so the region is read before and
     * after, and the larger charge counts; of two samples, the smaller unattributed memory counts.
     */
    public void sample(Source source) throws NvmlException {
        long now = nanoTime.getAsLong();
        Reading reading = read(source);
        Map<ContainerName, String> slots = reading.slots;
        long elapsed = now - lastSampleAt;
        lastSampleAt = now;
        addGpuTime(reading, elapsed / NANOS_PER_MICRO);
        addIdleHolders(reading, slots.keySet());
        Map<Key, Long> uncharged = new HashMap<>();
        reading.uses.forEach((key, use) -> {
            if (use.known) {
                uncharged.put(key, reading.uncharged(key));
            }
        });
        confirm(source, slots, uncharged);

        var ofContainers = new ArrayList<NodeUsage.OfContainer>();
        reading.uses.forEach((key, use) -> {
            ofContainers.add(ofContainer(
                    reading, key, Optional.ofNullable(uncharged.get(key)), now, elapsed / NANOS_PER_SECOND));
        });
        counters.keySet().retainAll(reading.uses.keySet());
        utilizationUntil
                .keySet()
                .retainAll(reading.gpus.stream().map(GpuUsage::uuid).toList());
        processes.retain(reading.pids());
        limits.retain(reading.pids());
        var usage = new NodeUsage(reading.ofGpus(), ofContainers);
        listeners.forEach(listener -> listener.add(usage));
    }

    /** Reads all containers; twice if one has appeared, so that its slot is known at once. */
    private Reading read(Source source) throws NvmlException {
        Reading reading = read(source, slotHolders.current());
        return slotHolders.isOutdated() ? read(source, slotHolders.current()) : reading;
    }

    /** Reads the regions of these containers, NVML, and the regions again. */
    private Reading read(Source source, Map<ContainerName, String> slots) throws NvmlException {
        Map<ContainerName, Map<String, Claim>> before = claims(slots);
        List<GpuUsage> gpus = source.usage(Map.copyOf(utilizationUntil));
        var reading = new Reading(slots, gpus, before, claims(slots), new LinkedHashMap<>(), new HashMap<>());
        gpus.forEach(gpu -> attribute(gpu, reading));
        return reading;
    }

    /**
     * Reads again while a container seems to use more uncharged memory than it was told, and keeps the smallest figure: an
     * allocation that comes and goes between the readings of its region is seen by NVML alone.
     */
    private void confirm(Source source, Map<ContainerName, String> slots, Map<Key, Long> uncharged)
            throws NvmlException {
        for (int i = 0; i < CONFIRMATIONS; i++) {
            Set<Key> larger = new HashSet<>(uncharged.keySet());
            larger.removeIf(key -> uncharged.getOrDefault(key, 0L) <= counters(key, null).told);
            if (larger.isEmpty()) {
                return;
            }
            Map<ContainerName, String> again = new HashMap<>(slots);
            again.keySet().retainAll(larger.stream().map(Key::container).collect(Collectors.toSet()));
            Reading reading = read(source, again);
            larger.forEach(key -> uncharged.merge(key, reading.uncharged(key), Math::min));
        }
    }

    private Map<ContainerName, Map<String, Claim>> claims(Map<ContainerName, String> slots) {
        Map<ContainerName, Map<String, Claim>> claims = new HashMap<>();
        slots.forEach((container, slot) -> regions.read(slot).ifPresent(read -> claims.put(container, read)));
        return claims;
    }

    /** Adds a GPU's processes to their containers, and the memory of the others to the GPU's. */
    private void attribute(GpuUsage gpu, Reading reading) {
        Map<ContainerName, Processes> byContainer = new TreeMap<>();
        Set<String> pods = allocation.get().pods(); // with those that the kubelet has admitted without Allocate
        long other = 0;
        for (GpuUsage.GpuProcess process : gpu.processes()) {
            Optional<HostProcess> host = processes.find(process.pid());
            Optional<ContainerName> holder = host.flatMap(HostProcess::container)
                    .flatMap(id -> names.find(id)
                            // the kubelet is asked first, and again if it did not know the pod: its slot has the region
                            .filter(name -> slotHolders.holdsVgpu(name) || pods.contains(id.podUid())));
            if (host.isPresent() && holder.isPresent()) {
                byContainer
                        .computeIfAbsent(holder.get(), name -> new Processes())
                        .add(process, host.get());
            } else {
                other += process.bytes().orElse(0);
            }
        }
        reading.otherBytes.put(gpu.uuid(), other);
        byContainer.forEach((container, use) -> reading.uses.put(new Key(container, gpu.uuid()), use));
    }

    private void addGpuTime(Reading reading, long sinceLast) {
        for (GpuUsage gpu : reading.gpus) {
            Long until = utilizationUntil.get(gpu.uuid());
            long latestEnd = until == null ? 0 : until;
            for (GpuUsage.Utilization sample : gpu.utilization()) {
                long period = until == null ? FIRST_PERIOD_MICROS : Math.max(0, sample.endMicros() - until);
                double used = period / MICROS_PER_SECOND * sample.percent() / 100;
                reading.uses.forEach((key, use) -> {
                    if (key.uuid.equals(gpu.uuid()) && use.pids.containsKey(sample.pid())) {
                        counters(key, use.id).gpuSeconds += used;
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
    }

    /** Adds containers that have used a GPU, or say so, and have no process on it now. */
    private void addIdleHolders(Reading reading, Set<ContainerName> holders) {
        for (GpuUsage gpu : reading.gpus) {
            for (ContainerName container : holders) {
                var key = new Key(container, gpu.uuid());
                if (counters.containsKey(key)
                        || reading.after.getOrDefault(container, Map.of()).containsKey(GpuUuids.digits(gpu.uuid()))) {
                    reading.uses.putIfAbsent(key, new Processes());
                }
            }
        }
    }

    /** Also tells the container's processes what they use beyond their charges. */
    private NodeUsage.OfContainer ofContainer(
            Reading reading, Key key, Optional<Long> uncharged, long now, double seconds) {
        Processes use = reading.use(key);
        Counters counted = counters(key, use.id);
        OptionalLong unattributed = OptionalLong.empty();
        if (uncharged.isPresent()) {
            counted.told = Math.min(uncharged.get(), counted.unchargedBefore);
            counted.unchargedBefore = uncharged.get();
            unattributed = OptionalLong.of(counted.told);
        }
        OptionalLong charged = reading.charged(key);
        Claim claim = Reading.claim(reading.after, key).orElse(Claim.NONE);
        counted.peak = Math.max(counted.peak, charged.orElse(0) + unattributed.orElse(0));
        Optional<String> slot = Optional.ofNullable(reading.slots.get(key.container));
        if (slot.isPresent()) {
            Held holds =
                    counted.id == null ? Held.UNKNOWN : allocation.get().held(key.container.ofPod(counted.id.podUid()));
            agentFiles.write(slot.get(), key.uuid, holds, unattributed, now / NANOS_PER_MILLI);
        }
        OptionalDouble utilization = reading.isUtilizationKnown(key.uuid)
                ? OptionalDouble.of(part(counted.gpuSeconds - counted.gpuSecondsBefore, seconds))
                : OptionalDouble.empty();
        counted.gpuSecondsBefore = counted.gpuSeconds;
        findUnlimited(reading, key, counted, now);
        return new NodeUsage.OfContainer(
                key.container,
                counted.id == null ? "" : counted.id.podUid(),
                slot,
                key.uuid,
                use.known ? OptionalLong.of(use.bytes) : OptionalLong.empty(),
                charged,
                unattributed,
                counted.peak,
                counted.gpuSeconds,
                utilization,
                claim.throttledNanos() / NANOS_PER_SECOND,
                claim.denied(),
                use.pids.size());
    }

    private static double part(double used, double seconds) {
        return Math.clamp(used / seconds, 0, 1);
    }

    /** Reports that the container's limits do not apply to one of its processes on the GPU. */
    private void findUnlimited(Reading reading, Key key, Counters counted, long now) {
        Set<Integer> uncounted = reading.uncountedPids(key);
        counted.uncountedSince.keySet().retainAll(uncounted);
        uncounted.forEach(pid -> counted.uncountedSince.putIfAbsent(pid, now));
        boolean isWithoutShim =
                counted.uncountedSince.values().stream().anyMatch(since -> now - since >= UNCOUNTED.toNanos());
        ContainerId id = counted.id;
        if (id != null) {
            covered(reading, key, uncounted)
                    .or(() -> isWithoutShim ? Optional.of(new Problem.WithoutShim(key.uuid)) : Optional.empty())
                    .ifPresent(problem -> findings.add(key.container.ofPod(id.podUid()), problem));
        }
    }

    private Optional<Problem> covered(Reading reading, Key key, Set<Integer> uncounted) {
        for (Map.Entry<Integer, HostProcess> process : reading.use(key).hosts.entrySet()) {
            Optional<LimitsCheck.Missing> missing = limits.find(process.getKey(), process.getValue(), key.container);
            // Where the files are elsewhere, a process that the shim counts has got others at their paths.
            boolean isCounted = reading.isRegionKnown(key) && !uncounted.contains(process.getKey());
            if (missing.isPresent() && (!missing.get().moved() || isCounted)) {
                return Optional.of(new Problem.LimitsNotSeen(missing.get().path()));
            }
        }
        return Optional.empty();
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

    /**
     * One reading of NVML between two of the containers' regions.
     *
     * @param slots of the containers whose regions were read
     * @param before what the regions said before, by GPU
     * @param after what they said afterwards
     * @param uses the processes of containers that hold vGPUs
     * @param otherBytes memory of the other processes, by GPU
     */
    private record Reading(
            Map<ContainerName, String> slots,
            List<GpuUsage> gpus,
            Map<ContainerName, Map<String, Claim>> before,
            Map<ContainerName, Map<String, Claim>> after,
            Map<Key, Processes> uses,
            Map<String, Long> otherBytes) {
        Processes use(Key key) {
            return uses.getOrDefault(key, NO_PROCESSES);
        }

        /** What is charged to a container's living processes; empty if its region is not known. */
        OptionalLong charged(Key key) {
            Optional<Claim> first = claim(before, key);
            Optional<Claim> second = claim(after, key);
            return first.isPresent() && second.isPresent()
                    ? OptionalLong.of(Math.max(use(key).charged(first.get()), use(key).charged(second.get())))
                    : OptionalLong.empty();
        }

        /** What a container uses beyond its charges. */
        long uncharged(Key key) {
            return Math.max(0, use(key).bytes - charged(key).orElse(0));
        }

        static Optional<Claim> claim(Map<ContainerName, Map<String, Claim>> claims, Key key) {
            return Optional.ofNullable(claims.get(key.container))
                    .map(byGpu -> byGpu.getOrDefault(GpuUuids.digits(key.uuid), Claim.NONE));
        }

        /** Whether NVML has a figure for the use of the GPU's time. */
        boolean isUtilizationKnown(String uuid) {
            return gpus.stream()
                    .anyMatch(gpu ->
                            gpu.uuid().equals(uuid) && gpu.utilizationPercent().isPresent());
        }

        boolean isRegionKnown(Key key) {
            return claim(after, key).isPresent();
        }

        /** The processes that use memory and are not in the container's region; empty if the region is not known. */
        Set<Integer> uncountedPids(Key key) {
            return claim(after, key).map(claim -> use(key).notIn(claim)).orElse(Set.of());
        }

        Set<Integer> pids() {
            return gpus.stream()
                    .flatMap(gpu -> gpu.processes().stream())
                    .map(GpuUsage.GpuProcess::pid)
                    .collect(Collectors.toSet());
        }

        List<NodeUsage.OfGpu> ofGpus() {
            return gpus.stream()
                    .map(gpu -> new NodeUsage.OfGpu(
                            gpu,
                            uses.entrySet().stream()
                                    .filter(use -> use.getKey().uuid.equals(gpu.uuid()))
                                    .mapToLong(use -> use.getValue().bytes)
                                    .sum(),
                            otherBytes.getOrDefault(gpu.uuid(), 0L)))
                    .toList();
        }
    }

    private static final class Counters {
        private @Nullable ContainerId id;

        /** The uncharged memory of the sample before. */
        private long unchargedBefore;

        /** The unattributed memory that the container was told last. */
        private long told;

        private long peak;
        private double gpuSeconds;

        /** At the sample before. */
        private double gpuSecondsBefore;

        /** The processes that use memory and are not in the region, and when they were first found so. */
        private final Map<Integer, Long> uncountedSince = new HashMap<>();
    }

    /** The processes of one container on one GPU. */
    private static final class Processes {
        /** PIDs in the container by those on the host. */
        private final Map<Integer, Integer> pids = new HashMap<>();

        private final Map<Integer, HostProcess> hosts = new HashMap<>();

        /** The PIDs on the host of those that use memory. */
        private final Set<Integer> withMemory = new HashSet<>();

        private long bytes;
        private boolean known = true;
        private @Nullable ContainerId id;

        void add(GpuUsage.GpuProcess process, HostProcess host) {
            pids.put(process.pid(), host.pidInContainer());
            hosts.put(process.pid(), host);
            if (process.bytes().orElse(0) > 0) {
                withMemory.add(process.pid());
            }
            bytes += process.bytes().orElse(0);
            known &= process.bytes().isPresent();
            id = host.container().orElse(null);
        }

        /** Those that use memory and have no place in the region; none if the region leaves it open. */
        Set<Integer> notIn(Claim claim) {
            Set<Integer> counted = claim.chargedBytes().keySet();
            return counted.contains(0)
                    ? Set.of()
                    : withMemory.stream()
                            .filter(pid -> !counted.contains(pids.get(pid)))
                            .collect(Collectors.toSet());
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
