package io.aliquot.scheduler.ledger;

import static io.aliquot.api.nodes.SharingMode.MEMORY;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import io.aliquot.api.nodes.ForeignHolder;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.api.usage.UsageReport.OfContainer;
import io.aliquot.api.usage.UsageReport.OfGpu;
import io.aliquot.scheduler.ledger.Holding.State;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.ledger.NodeFacts.Unavailable;
import io.aliquot.scheduler.placement.CandidatePlacements;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.Feasibility.Fits;
import io.aliquot.scheduler.placement.Feasibility.Refused;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuCapacity;
import io.aliquot.scheduler.placement.GpuInfo;
import io.aliquot.scheduler.placement.GpuSelection;
import io.aliquot.scheduler.placement.GpuSelector;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PlacementPolicy;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * One node's GPUs and the claims on them. The sums per GPU are updated with each claim. They are kept by UUID, also for
 * GPUs that the inventory does not list at the moment, so that a GPU that disappears and comes back is as full as before.
 * Thread-safe. A caller that needs several answers of one instant, or reads a list or the claims, synchronizes on it.
 */
final class NodeAccount implements NodeAccountView {
    /**
     * GPUs decide which node is fuller, since they are the expensive part of a GPU node; CPU and memory requests, a tenth
     * each, decide between nodes whose GPUs are equally full.
     */
    private static final double GPU_WEIGHT = 0.8;

    private static final long MIB = 1L << 20;

    static final Unavailable UNKNOWN = new Unavailable("the Aliquot scheduler does not know the node yet");
    static final Unavailable AGENT_NOT_READY =
            new Unavailable("the node's device plugin is not ready or does not answer");

    private final NodeAccounts accounts;

    @GuardedBy("this")
    private final Map<String, Claim> claims = new HashMap<>();

    @GuardedBy("this")
    private final Map<String, Tally> tallies = new HashMap<>();

    /** Pods that another product placed on this node, by uid. */
    @GuardedBy("this")
    private final Map<String, ForeignPod> foreignPods = new HashMap<>();

    /** What those of them hold that count, by GPU. */
    @GuardedBy("this")
    private Map<String, Tally> foreignTallies = Map.of();

    /** Memory that processes outside of all shares use, by GPU, as the node's agent measured it last; null before. */
    @GuardedBy("this")
    private @Nullable Map<String, Long> otherMiB;

    /** The GPUs that the node shares now. */
    @GuardedBy("this")
    private List<GpuCapacity> gpuCapacities = List.of();

    /** Free capacity of each GPU that the node shares now; an element is replaced when claims on its GPU change. */
    @GuardedBy("this")
    private List<GpuInfo> freeGpus = List.of();

    /** Capacity of the node without pods. */
    @GuardedBy("this")
    private FreeCapacity.Shape shape;

    /** CPU and memory of all claims. */
    @GuardedBy("this")
    private HostResources requested = HostResources.NONE;

    /** Free capacity of the node; null until it is needed. */
    @GuardedBy("this")
    private @Nullable FreeCapacity freeCapacity;

    private volatile NodeFacts facts = UNKNOWN;

    @GuardedBy("this")
    private boolean agentReady;

    private volatile long changes;
    /** As {@link #changes}, but a claim that only changes its state counts too. */
    private volatile long revision;

    /** The account of a node whose facts are not known yet. */
    NodeAccount(NodeAccounts accounts, boolean agentReady) {
        this.accounts = accounts;
        this.agentReady = agentReady;
        this.shape = shape();
        changed();
    }

    /** Sums over all claims on a GPU. */
    private static final class Tally {
        private long memoryMiB;
        private int cores;
        private int slots;
        private int exclusive;
        private int pods;

        Tally copy() {
            var copy = new Tally();
            copy.memoryMiB = memoryMiB;
            copy.cores = cores;
            copy.slots = slots;
            copy.exclusive = exclusive;
            copy.pods = pods;
            return copy;
        }

        void add(GpuAmount amount, int sign) {
            memoryMiB += sign * amount.memoryMiB();
            cores += sign * amount.cores();
            slots += sign * amount.slots();
            exclusive += amount.exclusive() ? sign : 0;
            pods += sign;
        }

        /** Counts at least this memory, of at least one vGPU. */
        void raise(long usedMiB) {
            memoryMiB = Math.max(memoryMiB, usedMiB);
            slots = Math.max(slots, 1);
            pods = Math.max(pods, 1);
        }

        GpuAmount sum() {
            return new GpuAmount(memoryMiB, cores, slots, exclusive > 0);
        }

        /** Memory, cores, vGPUs, claims of the whole card, claims. */
        List<Long> figures() {
            return List.of(memoryMiB, (long) cores, (long) slots, (long) exclusive, (long) pods);
        }
    }

    @Override
    public long changes() {
        return changes;
    }

    @GuardedBy("this")
    private void changed() {
        freeCapacity = null;
        long before = changes; // only the holder of the lock writes it
        changes = before + 1;
        bumpRevision();
    }

    long revision() {
        return revision;
    }

    @GuardedBy("this")
    private void bumpRevision() {
        long before = revision; // only the holder of the lock writes it
        revision = before + 1;
    }

    @Override
    public synchronized Optional<FreeCapacity> freeCapacity() {
        return facts instanceof Sharing sharing && agentReady ? Optional.of(freeCapacity(sharing)) : Optional.empty();
    }

    @GuardedBy("this")
    private FreeCapacity freeCapacity(Sharing sharing) {
        FreeCapacity known = freeCapacity;
        if (known == null) {
            known = FreeCapacity.of(shape, sharing.allocatable().minus(requested), freeGpus);
            freeCapacity = known;
        }
        return known;
    }

    /** Whether the node is unknown and has no claims. */
    synchronized boolean idle() {
        return facts.equals(UNKNOWN) && claims.isEmpty() && foreignPods.isEmpty();
    }

    /** Marks the account as removed, for threads that found it before. */
    synchronized void close() {
        changes = CLOSED;
    }

    boolean closed() {
        return changes == CLOSED;
    }

    NodeFacts facts() {
        return facts;
    }

    synchronized void setFacts(NodeFacts facts) {
        this.facts = facts;
        refreshGpus();
    }

    /** Adds or updates a pod that another product placed; returns whether anything changed. */
    synchronized boolean putForeign(ForeignPod pod) {
        if (pod.equals(foreignPods.put(pod.id().uid(), pod))) {
            return false;
        }
        refreshGpus();
        return true;
    }

    synchronized boolean removeForeign(String uid) {
        if (foreignPods.remove(uid) == null) {
            return false;
        }
        refreshGpus();
        return true;
    }

    @GuardedBy("this")
    private void refreshGpus() {
        List<GpuCapacity> before = gpuCapacities;
        FreeCapacity.Shape shapeBefore = shape;
        gpuCapacities = List.of();
        foreignTallies = new HashMap<>();
        if (facts instanceof Sharing sharing) {
            Set<String> listed = sharing.inventory().gpus().stream()
                    .flatMap(gpu -> gpu.heldBy().stream())
                    .filter(ForeignHolder::hami)
                    .map(ForeignHolder::pod)
                    .collect(Collectors.toSet());
            Map<String, Integer> memoryMiB = new HashMap<>();
            sharing.inventory().gpus().forEach(gpu -> memoryMiB.put(gpu.uuid(), gpu.memoryMiB()));
            var counted = new HashSet<String>();
            for (ForeignPod pod : foreignPods.values()) {
                if (otherMiB != null
                        && listed.contains(pod.name())
                        && pod.vgpus().stream().allMatch(vgpu -> memoryMiB.containsKey(vgpu.gpu()))) {
                    counted.add(pod.name());
                    pod.vgpus()
                            .forEach(vgpu -> foreignTallies
                                    .computeIfAbsent(vgpu.gpu(), any -> new Tally())
                                    .add(vgpu.on(memoryMiB.getOrDefault(vgpu.gpu(), 0)), 1));
                }
            }
            if (otherMiB != null && !counted.isEmpty()) {
                // The owner of such a pod can write that it holds another GPU.
                otherMiB.forEach((gpu, used) -> {
                    if (used > 0) {
                        foreignTallies.computeIfAbsent(gpu, any -> new Tally()).raise(used);
                    }
                });
            }
            gpuCapacities = sharing.gpus().list(holder -> holder.hami() && counted.contains(holder.pod()));
        }
        // Registers the GPU models, by which requests in percent are converted.
        shape = shape();
        accounts.models.release(before, shapeBefore);
        freeGpus = freeCapacities(tallies);
        changed();
    }

    @GuardedBy("this")
    private FreeCapacity.Shape shape() {
        return accounts.models.shape(
                gpuCapacities(), facts instanceof Sharing sharing ? sharing.allocatable() : HostResources.NONE);
    }

    /** The GPUs that the node shares now. */
    synchronized List<GpuCapacity> gpuCapacities() {
        return gpuCapacities;
    }

    @GuardedBy("this")
    private List<GpuInfo> freeCapacities(Map<String, Tally> allocated) {
        var free = new ArrayList<GpuInfo>();
        for (GpuCapacity capacity : gpuCapacities) {
            free.add(freeCapacity(capacity, allocated.get(capacity.gpu().uuid())));
        }
        return free;
    }

    @GuardedBy("this")
    private GpuInfo freeCapacity(GpuCapacity capacity, @Nullable Tally tally) {
        Tally foreign = foreignTallies.get(capacity.gpu().uuid());
        if (foreign == null) {
            return new GpuInfo(capacity, tally == null ? GpuAmount.NOTHING : tally.sum());
        }
        Tally both = foreign.copy();
        if (tally != null) {
            both.add(tally.sum(), 1);
        }
        return new GpuInfo(capacity, both.sum());
    }

    synchronized void setAgentReady(boolean agentReady) {
        this.agentReady = agentReady;
        changed();
    }

    /** Whether the node's agent answers the kubelet. */
    synchronized boolean agentReady() {
        return agentReady;
    }

    synchronized Optional<Claim> claim(String uid) {
        return Optional.ofNullable(claims.get(uid));
    }

    synchronized Iterable<Claim> claims() {
        return claims.values();
    }

    synchronized boolean holdsShares() {
        return claims.values().stream()
                .anyMatch(claim -> !claim.perGpu.isEmpty()
                        && claim.state != State.RESERVED
                        && claim.state != State.RESERVED_FOR_PREEMPTOR);
    }

    /** Sets the pod's claim if the quotas of its namespace allow it; returns what is missing if they do not. */
    synchronized Optional<String> admit(Claim claim) {
        Optional<String> missing = accounts.quotas.admit(claim);
        if (missing.isEmpty()) {
            count(claim);
        }
        return missing;
    }

    /** Sets the pod's claim, whatever the quotas allow. */
    synchronized void put(Claim claim) {
        accounts.quotas.put(claim);
        count(claim);
    }

    /** If the amounts are those of the former claim, the account counts as unchanged. */
    @GuardedBy("this")
    private void count(Claim claim) {
        Claim before = claims.put(claim.pod.uid(), claim);
        bumpRevision();
        if (before == null) {
            add(claim, 1);
        } else if (!before.hasAmountsOf(claim)) {
            add(before, -1);
            add(claim, 1);
        }
    }

    /** Takes note of what containers and other processes use; returns whether that may free capacity. */
    synchronized boolean measure(UsageReport report, long askedAt) {
        boolean fewerOthers = measureOthers(report.gpus());
        return measureContainers(report.containers(), askedAt) || fewerOthers;
    }

    @GuardedBy("this")
    private boolean measureOthers(List<OfGpu> gpus) {
        Map<String, Long> now = gpus.stream()
                .collect(Collectors.toMap(OfGpu::gpu, gpu -> (gpu.otherBytes().orElse(0) + MIB - 1) / MIB, Math::max));
        boolean changes = !now.equals(otherMiB);
        otherMiB = now;
        if (!changes || foreignPods.isEmpty()) {
            return false;
        }
        refreshGpus();
        return true;
    }

    @GuardedBy("this")
    private boolean measureContainers(List<OfContainer> uses, long askedAt) {
        Map<String, List<OfContainer>> byPod = uses.stream()
                .collect(Collectors.groupingBy(use -> use.container().uid()));
        boolean freed = false;
        for (Claim claim : List.copyOf(claims.values())) {
            if (claim.state == Holding.State.HELD && !claim.isResizing()) {
                Excess excess = claim.excess()
                        .measured(claim.shares(), byPod.getOrDefault(claim.pod.uid(), List.of()), askedAt);
                if (!excess.equals(claim.excess())) {
                    put(claim.withExcess(excess));
                    freed |= excess.equals(Excess.NONE);
                }
            }
        }
        return freed;
    }

    synchronized Optional<Claim> remove(String uid) {
        Claim claim = claims.remove(uid);
        if (claim != null) {
            accounts.quotas.remove(claim);
            add(claim, -1);
        }
        return Optional.ofNullable(claim);
    }

    @GuardedBy("this")
    private void add(Claim claim, int sign) {
        claim.perGpu.forEach((uuid, amount) -> {
            Tally tally = tallies.computeIfAbsent(uuid, any -> new Tally());
            tally.add(amount, sign);
            if (tally.pods == 0) {
                tallies.remove(uuid);
            }
            replace(freeGpus, uuid, tally);
        });
        requested = sign > 0 ? requested.plus(claim.hostRequests) : requested.minus(claim.hostRequests);
        changed();
    }

    @GuardedBy("this")
    private void replace(List<GpuInfo> freeGpus, String uuid, Tally tally) {
        for (int index = 0; index < freeGpus.size(); index++) {
            GpuCapacity capacity = freeGpus.get(index).capacity();
            if (capacity.gpu().uuid().equals(uuid)) {
                freeGpus.set(index, freeCapacity(capacity, tally));
            }
        }
    }

    @Override
    public synchronized Feasibility feasibility(
            String uid, PodGpuRequest request, Set<String> without, Optional<CandidatePlacements> candidates) {
        if (!(facts instanceof Sharing sharing && agentReady)) {
            return unavailable();
        }
        Optional<Refused> cannotStart = runtimeRefusal(request);
        if (cannotStart.isPresent()) {
            return cannotStart.get();
        }
        List<GpuInfo> free = freeCapacitiesWithout(uid, without);
        PlacementPolicy policy = gpuPolicy(request, sharing);
        return switch (GpuSelector.feasible(request, free, policy)) {
            case Refused refused -> refused;
            case Fits fits -> {
                if (candidates.isPresent()) {
                    find(candidates.get(), uid, sharing, without, free, policy);
                }
                yield new Fits(fullness(fits.fullness(), hostFullness(sharing, uid)));
            }
        };
    }

    /** A node's fullness from its GPUs' and its host's, each 0 to 1. */
    static double fullness(double gpus, double host) {
        return GPU_WEIGHT * gpus + (1 - GPU_WEIGHT) * host;
    }

    /**
     * Finds a pod's candidates on this node.
     *
     * @param freeGpus free capacities of the GPUs without the claims of the pod and of {@code without}
     */
    @GuardedBy("this")
    private void find(
            CandidatePlacements candidates,
            String uid,
            Sharing sharing,
            Set<String> without,
            List<GpuInfo> freeGpus,
            PlacementPolicy policy) {
        HostResources free = sharing.allocatable().minus(requested).plus(hostRequests(uid));
        FreeCapacity before = claims.containsKey(uid) || !without.isEmpty()
                ? FreeCapacity.of(shape, free, freeGpus)
                : freeCapacity(sharing);
        candidates.find(before, free, freeGpus, policy);
    }

    /** Selects GPUs for a pod; claims of this pod and of {@code without} are disregarded. */
    synchronized GpuSelection select(String uid, PodGpuRequest request, Set<String> without) {
        if (!(facts instanceof Sharing sharing && agentReady)) {
            return unavailable();
        }
        Optional<Refused> cannotStart = runtimeRefusal(request);
        if (cannotStart.isPresent()) {
            return cannotStart.get();
        }
        List<GpuInfo> free = freeCapacitiesWithout(uid, without);
        PlacementPolicy policy = gpuPolicy(request, sharing);
        if (!request.requestsOneVgpu() || !policy.scoresCandidates()) {
            return GpuSelector.select(request, free, policy);
        }
        if (GpuSelector.feasible(request, free, policy) instanceof Refused refused) {
            return refused;
        }
        var candidates = new CandidatePlacements(request, accounts.models);
        find(candidates, uid, sharing, without, free, policy);
        return GpuSelector.selectGpu(accounts.choose(candidates), request, free);
    }

    @GuardedBy("this")
    private HostResources hostRequests(String uid) {
        Claim own = claims.get(uid);
        return own == null ? HostResources.NONE : own.hostRequests;
    }

    /** The refusal of a node that takes no pods now. */
    private Refused unavailable() {
        return new Refused((facts instanceof Unavailable unavailable ? unavailable : AGENT_NOT_READY).reason(), true);
    }

    /** Why the node's container runtime cannot start a pod; empty if it can, or if the node is unavailable. */
    Optional<Refused> runtimeRefusal(PodGpuRequest request) {
        return facts instanceof Sharing sharing
                ? sharing.runtime().refusal(request.runtime(), accounts.handler(request.runtime()))
                : Optional.empty();
    }

    /** Answers of this account before a change of a RuntimeClass are outdated. */
    synchronized void runtimeClassesChanged() {
        changed();
    }

    private static PlacementPolicy gpuPolicy(PodGpuRequest request, Sharing sharing) {
        return PlacementPolicy.of(request.gpuPlacement().orElse(sharing.gpuPlacement()));
    }

    /** Free capacity of every GPU that the node shares; the list changes with the account. */
    synchronized List<GpuInfo> freeCapacities() {
        return freeGpus;
    }

    /** The same without the claims of these pods. */
    @GuardedBy("this")
    private List<GpuInfo> freeCapacitiesWithout(String uid, Set<String> others) {
        Claim own = claims.get(uid);
        if (own == null && others.isEmpty()) {
            return freeGpus;
        }
        var reduced = new @Nullable Tally[freeGpus.size()];
        subtract(own, reduced);
        for (String other : others) {
            if (!other.equals(uid)) {
                subtract(claims.get(other), reduced);
            }
        }
        var without = new ArrayList<>(freeGpus);
        for (int index = 0; index < reduced.length; index++) {
            Tally tally = reduced[index];
            if (tally != null) {
                without.set(index, freeCapacity(freeGpus.get(index).capacity(), tally));
            }
        }
        return without;
    }

    /** Subtracts a claim from copies of the tallies; an element of {@code reduced} is null until its GPU is reduced. */
    @GuardedBy("this")
    private void subtract(@Nullable Claim claim, @Nullable Tally[] reduced) {
        if (claim == null) {
            return;
        }
        for (int index = 0; index < reduced.length; index++) {
            String gpu = freeGpus.get(index).capacity().gpu().uuid();
            GpuAmount amount = claim.perGpu.get(gpu);
            if (amount != null) {
                Tally tally = reduced[index];
                if (tally == null) {
                    tally = Objects.requireNonNull(tallies.get(gpu)).copy();
                    reduced[index] = tally;
                }
                tally.add(amount, -1);
            }
        }
    }

    /** The part of CPU and memory that other pods request, 0 to 1. */
    @GuardedBy("this")
    private double hostFullness(Sharing sharing, String uid) {
        HostResources others = requested.minus(hostRequests(uid));
        HostResources total = sharing.allocatable();
        return (ratio(others.cpuMillis(), total.cpuMillis()) + ratio(others.memoryBytes(), total.memoryBytes())) / 2;
    }

    private static double ratio(long part, long whole) {
        return whole <= 0 ? 1 : Math.min(1, (double) part / whole);
    }

    /** Why a GPU cannot give a container these amounts even without other pods; empty if it can, or already does. */
    synchronized Optional<String> unsuitable(List<ContainerShare> present, List<ContainerShare> wanted) {
        List<Vgpu> before = vgpus(present);
        List<Vgpu> after = vgpus(wanted);
        return IntStream.range(0, after.size())
                .mapToObj(i -> unsuitable(before.get(i), after.get(i)))
                .flatMap(Optional::stream)
                .findFirst();
    }

    private static List<Vgpu> vgpus(List<ContainerShare> shares) {
        return shares.stream().flatMap(share -> share.vgpus().list().stream()).toList();
    }

    private Optional<String> unsuitable(Vgpu before, Vgpu after) {
        Optional<GpuCapacity> capacity = gpuCapacities().stream()
                .filter(gpu -> gpu.gpu().uuid().equals(after.uuid()))
                .findFirst();
        boolean grows = after.memoryMiB() > before.memoryMiB();
        if (capacity.isEmpty()) {
            return grows || after.cores() > before.cores()
                    ? Optional.of("its node no longer shares GPU " + after.uuid())
                    : Optional.empty();
        }
        int memoryMiB = capacity.get().gpu().memoryMiB();
        if (grows && after.memoryMiB() > memoryMiB) {
            return Optional.of("GPU " + after.uuid() + " itself has " + memoryMiB + " MiB, whatever its node's scaling,"
                    + " and no container gets more of it; one is to hold " + after.memoryMiB() + " MiB");
        }
        return capacity.get().sharingMode() == MEMORY && after.cores() > 0 && after.cores() != before.cores()
                ? Optional.of(
                        "GPU " + after.uuid() + " is shared by memory alone, so its cores are neither reserved nor"
                                + " limited; leave cores out, or set them to 0")
                : Optional.empty();
    }

    /** What is missing for a pod's amounts to grow to these; empty if they fit or do not grow. */
    synchronized Optional<String> lacking(BoundPod pod, Map<String, GpuAmount> wanted) {
        Map<String, GpuAmount> present = pod.perGpu();
        for (GpuInfo free : freeCapacitiesWithout(pod.id().uid(), Set.of())) {
            String gpu = free.gpu().uuid();
            GpuAmount amount = wanted.get(gpu);
            if (amount != null && !amount.equals(present.get(gpu)) && !holds(free, amount)) {
                return Optional.of("GPU " + gpu + " has " + available(free) + " for this pod, which is to hold "
                        + describe(amount.memoryMiB(), amount.cores()));
            }
        }
        return Optional.empty();
    }

    private static boolean holds(GpuInfo gpu, GpuAmount amount) {
        return gpu.holds(amount.memoryMiB(), amount.cores(), amount.slots(), amount.exclusive());
    }

    private static String available(GpuInfo free) {
        GpuCapacity capacity = free.capacity();
        GpuAmount taken = free.allocated();
        return capacity.cordoned() || !capacity.gpu().healthy()
                ? "nothing more, since it is cordoned or unhealthy,"
                : describe(
                                Math.max(0, capacity.memoryMiB() - taken.memoryMiB()),
                                Math.max(0, capacity.cores() - taken.cores()))
                        + " at most";
    }

    private static String describe(long memoryMiB, int cores) {
        return memoryMiB + " MiB and " + cores + " % of the cores";
    }

    /** GPUs of which bound pods hold more than the capacity. */
    synchronized List<String> overallocated() {
        var overallocated = new ArrayList<String>();
        for (GpuCapacity capacity : gpuCapacities()) {
            Tally total = tallies.get(capacity.gpu().uuid());
            if (total != null && exceeds(total, capacity) && exceeds(bound(capacity.gpu()), capacity)) {
                overallocated.add(capacity.gpu().uuid());
            }
        }
        return overallocated;
    }

    private static boolean exceeds(Tally tally, GpuCapacity capacity) {
        return tally.memoryMiB > capacity.memoryMiB()
                || tally.cores > capacity.cores()
                || tally.slots > capacity.slots()
                || (tally.exclusive > 0 && tally.pods > 1);
    }

    /** Whether these pods together hold more of a GPU than its capacity. */
    synchronized boolean overallocated(String gpu, Collection<BoundPod> pods) {
        var tally = new Tally();
        pods.forEach(pod -> Optional.ofNullable(pod.perGpu().get(gpu)).ifPresent(amount -> tally.add(amount, 1)));
        return gpuCapacities().stream()
                .anyMatch(capacity -> capacity.gpu().uuid().equals(gpu) && exceeds(tally, capacity));
    }

    /** The sums without reservations. */
    @GuardedBy("this")
    private Tally bound(Gpu gpu) {
        var tally = new Tally();
        for (Claim claim : claims.values()) {
            GpuAmount amount = claim.perGpu.get(gpu.uuid());
            if (amount != null && claim.mayBeBound()) {
                tally.add(amount, 1);
            }
        }
        return tally;
    }

    /** The pods that hold a part of this GPU, or may hold it. */
    synchronized Set<PodId> holders(String uuid) {
        var holders = new LinkedHashSet<PodId>();
        for (Claim claim : claims.values()) {
            if (claim.perGpu.containsKey(uuid) && claim.mayBeBound()) {
                holders.add(claim.pod);
            }
        }
        return holders;
    }

    /**
     * Recounts from the claims what each change of a claim updates. Called by the tests that change claims at random.
     *
     * @throws IllegalStateException with both values if one differs
     */
    synchronized void recount() {
        var recounted = new HashMap<String, Tally>();
        HostResources requests = HostResources.NONE;
        for (Claim claim : claims.values()) {
            claim.perGpu.forEach((uuid, amount) ->
                    recounted.computeIfAbsent(uuid, any -> new Tally()).add(amount, 1));
            requests = requests.plus(claim.hostRequests);
        }
        expect("sums of claims", figures(recounted), figures(tallies));
        expect("CPU and memory of claims", requests, requested);
        expect("GPUs", gpuCapacities, freeGpus.stream().map(GpuInfo::capacity).toList());
        List<GpuInfo> free = freeCapacities(recounted);
        expect("allocated amounts", allocated(free), allocated(freeGpus));
        if (freeCapacity != null && facts instanceof Sharing sharing) {
            expect("free capacity", FreeCapacity.of(shape, sharing.allocatable().minus(requests), free), freeCapacity);
        }
    }

    private static Map<String, List<Long>> figures(Map<String, Tally> tallies) {
        return tallies.entrySet().stream()
                .collect(Collectors.toMap(
                        Map.Entry::getKey, tally -> tally.getValue().figures()));
    }

    private static List<GpuAmount> allocated(List<GpuInfo> gpus) {
        return gpus.stream().map(GpuInfo::allocated).toList();
    }

    private static void expect(String what, Object recounted, Object kept) {
        if (!kept.equals(recounted)) {
            throw new IllegalStateException(what + " differ: expected " + recounted + ", found " + kept);
        }
    }
}
