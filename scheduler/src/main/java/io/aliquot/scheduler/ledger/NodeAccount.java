package io.aliquot.scheduler.ledger;

import static io.aliquot.api.SharingMode.MEMORY;

import io.aliquot.api.Gpu;
import io.aliquot.api.Placement;
import io.aliquot.api.Vgpu;
import io.aliquot.scheduler.ledger.NodeFacts.LeftOut;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.placement.CandidatePlacements;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuCapacity;
import io.aliquot.scheduler.placement.GpuFreeCapacity;
import io.aliquot.scheduler.placement.GpuSelection;
import io.aliquot.scheduler.placement.GpuSelection.Fits;
import io.aliquot.scheduler.placement.GpuSelection.QuickCheck;
import io.aliquot.scheduler.placement.GpuSelection.Refused;
import io.aliquot.scheduler.placement.GpuSelector;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * One node's GPUs and the claims on them. Sums per GPU are kept up to date with each claim, and by UUID whether or not
 * the inventory lists the GPU just now, so that one that disappears and comes back is no emptier. Callers synchronize
 * on it.
 */
final class NodeAccount implements NodeAccountView {
    /**
     * GPUs decide which node is fuller, since they are the expensive part of a GPU node; CPU and memory requests, a tenth
     * each, decide between nodes whose GPUs are equally full.
     */
    private static final double GPU_WEIGHT = 0.8;

    static final LeftOut UNKNOWN = new LeftOut("the Aliquot scheduler does not know the node yet");
    static final LeftOut UNSERVED = new LeftOut("the node's device plugin is not ready");

    private final int number;
    private final NodeAccounts accounts;
    private final Map<String, Claim> claims = new HashMap<>();
    private final Map<String, Tally> tallies = new HashMap<>();
    /** Of the GPUs that it shares now, with everybody's claims; each is made anew when those on its GPU change. */
    private List<GpuFreeCapacity> rooms = List.of();

    /** Of the same, when nothing runs there. */
    private FreeCapacity.Shape shape;

    private HostResources requested = HostResources.NONE;
    /** What is left with everybody's claims; absent until somebody asks. */
    private @Nullable FreeCapacity room;

    private volatile NodeFacts facts = UNKNOWN;
    private boolean served;
    private volatile boolean closed;
    private volatile long changes;

    /**
     * Nothing is known of the node.
     *
     * @param number that no other account has while this one is open
     */
    NodeAccount(int number, NodeAccounts accounts, boolean served) {
        this.number = number;
        this.accounts = accounts;
        this.served = served;
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

        GpuAmount sum() {
            return new GpuAmount(memoryMiB, cores, slots, exclusive > 0);
        }
    }

    @Override
    public int number() {
        return number;
    }

    @Override
    public long changes() {
        return changes;
    }

    private void changed() {
        room = null;
        changes = accounts.changes.count(number);
        accounts.notifyChanged(this);
    }

    @Override
    public synchronized Capacity capacity() {
        return new Capacity(
                changes,
                facts instanceof Sharing sharing && served ? Optional.of(freeCapacity(sharing)) : Optional.empty());
    }

    private FreeCapacity freeCapacity(Sharing sharing) {
        FreeCapacity known = room;
        if (known == null) {
            known = FreeCapacity.of(shape, sharing.allocatable().minus(requested), rooms);
            room = known;
        }
        return known;
    }

    /** Whether it tells no more than that the node is not known. */
    boolean idle() {
        return facts.equals(UNKNOWN) && claims.isEmpty();
    }

    /** Nobody finds it any more, and who has found it already must look again. */
    void close() {
        closed = true;
    }

    boolean closed() {
        return closed;
    }

    NodeFacts facts() {
        return facts;
    }

    void setFacts(NodeFacts facts) {
        this.facts = facts;
        // Before anybody is judged: what a pod asks for in percent is learnt by the cards that there are.
        shape = shape();
        rooms = new ArrayList<>();
        for (GpuCapacity card : cards()) {
            rooms.add(freeCapacity(card, tallies.get(card.gpu().uuid())));
        }
        changed();
    }

    private FreeCapacity.Shape shape() {
        return accounts.models.shape(
                cards(), facts instanceof Sharing sharing ? sharing.allocatable() : HostResources.NONE);
    }

    private List<GpuCapacity> cards() {
        return facts instanceof Sharing sharing ? sharing.cards().list() : List.of();
    }

    private static GpuFreeCapacity freeCapacity(GpuCapacity card, @Nullable Tally tally) {
        return new GpuFreeCapacity(card, tally == null ? GpuAmount.NOTHING : tally.sum());
    }

    /** Whether its agent answers the kubelet. */
    void setServed(boolean served) {
        this.served = served;
        changed();
    }

    boolean served() {
        return served;
    }

    Optional<Claim> claim(String uid) {
        return Optional.ofNullable(claims.get(uid));
    }

    Iterable<Claim> claims() {
        return claims.values();
    }

    /** In the place of the pod's last one; if it takes as much as that did, nobody is answered otherwise than before. */
    void put(Claim claim) {
        Claim before = claims.put(claim.pod.uid(), claim);
        if (before == null) {
            add(claim, 1);
        } else if (!before.takesAsMuchAs(claim)) {
            add(before, -1);
            add(claim, 1);
        }
    }

    Optional<Claim> remove(String uid) {
        Claim claim = claims.remove(uid);
        if (claim != null) {
            add(claim, -1);
        }
        return Optional.ofNullable(claim);
    }

    private void add(Claim claim, int sign) {
        claim.perGpu.forEach((uuid, amount) -> {
            Tally tally = tallies.computeIfAbsent(uuid, any -> new Tally());
            tally.add(amount, sign);
            if (tally.pods == 0) {
                tallies.remove(uuid);
            }
            replace(rooms, uuid, tally);
        });
        requested = sign > 0 ? requested.plus(claim.requests) : requested.minus(claim.requests);
        changed();
    }

    private static void replace(List<GpuFreeCapacity> rooms, String uuid, Tally tally) {
        for (int place = 0; place < rooms.size(); place++) {
            GpuCapacity card = rooms.get(place).capacity();
            if (card.gpu().uuid().equals(uuid)) {
                rooms.set(place, freeCapacity(card, tally));
            }
        }
    }

    @Override
    public synchronized Feasibility feasibility(
            String uid, PodGpuRequest ask, Set<String> without, Optional<CandidatePlacements> ways) {
        if (!(facts instanceof Sharing sharing && served)) {
            return refuses(notAtAll());
        }
        List<GpuFreeCapacity> rest = freeCapacitiesWithout(uid, without);
        Placement policy = gpuPlacement(ask, sharing);
        QuickCheck quickCheck = GpuSelector.feasible(ask, rest, policy);
        if (!(quickCheck instanceof Fits fits)) {
            return refuses((Refused) quickCheck);
        }
        if (ways.isPresent()) {
            find(ways.get(), uid, sharing, without, rest, policy);
        }
        return new Feasibility.Fits(fullness(fits.fullness(), hostFullness(sharing, uid)));
    }

    /** A node's fullness from its GPUs' and its host's, each 0 to 1. */
    static double fullness(double gpus, double host) {
        return GPU_WEIGHT * gpus + (1 - GPU_WEIGHT) * host;
    }

    private static Feasibility refuses(Refused refused) {
        return new Feasibility.Refuses(refused.reason(), refused.unresolvable());
    }

    /** {@code rest}: the rooms without these claims. */
    private void find(
            CandidatePlacements ways,
            String uid,
            Sharing sharing,
            Set<String> without,
            List<GpuFreeCapacity> rest,
            Placement policy) {
        HostResources left = sharing.allocatable().minus(requested).plus(requests(uid));
        FreeCapacity before = claims.containsKey(uid) || !without.isEmpty()
                ? FreeCapacity.of(shape, left, rest)
                : freeCapacity(sharing);
        ways.find(before, left, rest, policy);
    }

    /** What a pod would get here, its present claim on this node and those of others set aside. */
    GpuSelection select(String uid, PodGpuRequest ask, Set<String> without) {
        if (!(facts instanceof Sharing sharing && served)) {
            return notAtAll();
        }
        List<GpuFreeCapacity> rooms = freeCapacitiesWithout(uid, without);
        Placement policy = gpuPlacement(ask, sharing);
        if (!ask.requestsOneVgpu() || policy != Placement.FRAGMENTATION) {
            return GpuSelector.select(ask, rooms, policy);
        }
        if (GpuSelector.feasible(ask, rooms, policy) instanceof Refused refused) {
            return refused;
        }
        var ways = new CandidatePlacements(ask, accounts.models);
        find(ways, uid, sharing, without, rooms, policy);
        return GpuSelector.selectGpu(accounts.choose(ways), ask, rooms);
    }

    /** Whether a pod's GPUs are chosen by the judge. */
    boolean judgesGpus(PodGpuRequest ask) {
        return facts instanceof Sharing sharing && gpuPlacement(ask, sharing) == Placement.FRAGMENTATION;
    }

    private HostResources requests(String uid) {
        Claim own = claims.get(uid);
        return own == null ? HostResources.NONE : own.requests;
    }

    /** For a node that takes no pod now, whatever it asks for. */
    private Refused notAtAll() {
        return new Refused((facts instanceof LeftOut leftOut ? leftOut : UNSERVED).reason(), true);
    }

    private static Placement gpuPlacement(PodGpuRequest ask, Sharing sharing) {
        return ask.gpuPlacement().orElse(sharing.gpuPlacement());
    }

    /** Every GPU that the node shares; to be read while synchronized. */
    List<GpuFreeCapacity> freeCapacities() {
        return rooms;
    }

    /** The same without the claims of these pods. */
    private List<GpuFreeCapacity> freeCapacitiesWithout(String uid, Set<String> others) {
        Claim own = claims.get(uid);
        if (own == null && others.isEmpty()) {
            return rooms;
        }
        var rest = new @Nullable Tally[rooms.size()];
        takeOff(own, rest);
        for (String other : others) {
            if (!other.equals(uid)) {
                takeOff(claims.get(other), rest);
            }
        }
        var without = new ArrayList<>(rooms);
        for (int place = 0; place < rest.length; place++) {
            Tally tally = rest[place];
            if (tally != null) {
                without.set(place, freeCapacity(rooms.get(place).capacity(), tally));
            }
        }
        return without;
    }

    /** Takes a claim off what is taken of each GPU; null where none has been taken off yet. */
    private void takeOff(@Nullable Claim claim, @Nullable Tally[] rest) {
        if (claim == null) {
            return;
        }
        for (int place = 0; place < rest.length; place++) {
            String gpu = rooms.get(place).capacity().gpu().uuid();
            GpuAmount amount = claim.perGpu.get(gpu);
            if (amount != null) {
                Tally tally = rest[place];
                if (tally == null) {
                    tally = Objects.requireNonNull(tallies.get(gpu)).copy();
                    rest[place] = tally;
                }
                tally.add(amount, -1);
            }
        }
    }

    /** How much of the host's CPU and memory others request, 0 to 1. */
    private double hostFullness(Sharing sharing, String uid) {
        HostResources others = requested.minus(requests(uid));
        HostResources all = sharing.allocatable();
        return (share(others.cpuMillis(), all.cpuMillis()) + share(others.memoryBytes(), all.memoryBytes())) / 2;
    }

    private static double share(long part, long whole) {
        return whole <= 0 ? 1 : Math.min(1, (double) part / whole);
    }

    /** Why a container can't have this of a GPU, whoever else is there; empty where each can, or has as much already. */
    Optional<String> unsuitable(List<ContainerAllocation> present, List<ContainerAllocation> wanted) {
        List<Vgpu> before = vgpus(present);
        List<Vgpu> after = vgpus(wanted);
        return IntStream.range(0, after.size())
                .mapToObj(i -> unsuitable(before.get(i), after.get(i)))
                .flatMap(Optional::stream)
                .findFirst();
    }

    private static List<Vgpu> vgpus(List<ContainerAllocation> shares) {
        return shares.stream().flatMap(share -> share.vgpus().list().stream()).toList();
    }

    private Optional<String> unsuitable(Vgpu before, Vgpu after) {
        Optional<GpuCapacity> card = cards().stream()
                .filter(one -> one.gpu().uuid().equals(after.uuid()))
                .findFirst();
        boolean grows = after.memoryMiB() > before.memoryMiB();
        if (card.isEmpty()) {
            return grows || after.cores() > before.cores()
                    ? Optional.of("its node shares GPU " + after.uuid() + " no more")
                    : Optional.empty();
        }
        int memoryMiB = card.get().gpu().memoryMiB();
        if (grows && after.memoryMiB() > memoryMiB) {
            return Optional.of("GPU " + after.uuid() + " itself has " + memoryMiB + " MiB, whatever its node's scaling,"
                    + " and no container gets more of it; one is to hold " + after.memoryMiB() + " MiB");
        }
        return card.get().sharingMode() == MEMORY && after.cores() > 0 && after.cores() != before.cores()
                ? Optional.of(
                        "GPU " + after.uuid() + " is shared by memory alone, so its cores are neither reserved nor"
                                + " limited; leave cores out, or set them to 0")
                : Optional.empty();
    }

    /** What there isn't for a claim to grow to this, which suits its GPUs; empty where it fits, or doesn't grow. */
    Optional<String> lacking(Claim claim, Map<String, GpuAmount> wanted) {
        for (GpuFreeCapacity room : freeCapacitiesWithout(claim.pod.uid(), Set.of())) {
            String gpu = room.gpu().uuid();
            GpuAmount amount = wanted.get(gpu);
            if (amount != null && !amount.equals(claim.perGpu.get(gpu)) && !holds(room, amount)) {
                return Optional.of("GPU " + gpu + " has " + atMost(room) + " for this pod, which is to hold "
                        + words(amount.memoryMiB(), amount.cores()));
            }
        }
        return Optional.empty();
    }

    private static boolean holds(GpuFreeCapacity room, GpuAmount amount) {
        return room.holds(amount.memoryMiB(), amount.cores(), amount.slots(), amount.exclusive());
    }

    private static String atMost(GpuFreeCapacity room) {
        GpuCapacity card = room.capacity();
        GpuAmount taken = room.allocated();
        return card.cordoned() || !card.gpu().healthy()
                ? "nothing more, since it is cordoned or unhealthy,"
                : words(Math.max(0, card.memoryMiB() - taken.memoryMiB()), Math.max(0, card.cores() - taken.cores()))
                        + " at most";
    }

    private static String words(long memoryMiB, int cores) {
        return memoryMiB + " MiB and " + cores + " % of the cores";
    }

    /** GPUs of which there is less than bound pods take together. */
    List<String> overallocated() {
        var oversold = new ArrayList<String>();
        for (GpuCapacity card : cards()) {
            Tally all = tallies.get(card.gpu().uuid());
            if (all != null && tooMuch(all, card) && tooMuch(bound(card.gpu()), card)) {
                oversold.add(card.gpu().uuid());
            }
        }
        return oversold;
    }

    private static boolean tooMuch(Tally tally, GpuCapacity card) {
        return tally.memoryMiB > card.memoryMiB()
                || tally.cores > card.cores()
                || tally.slots > card.slots()
                || (tally.exclusive > 0 && tally.pods > 1);
    }

    /** Whether these pods together hold more of a GPU than it has. */
    boolean overallocated(String gpu, Collection<BoundPod> pods) {
        var tally = new Tally();
        pods.forEach(pod -> Optional.ofNullable(pod.perGpu().get(gpu)).ifPresent(amount -> tally.add(amount, 1)));
        return cards().stream().anyMatch(card -> card.gpu().uuid().equals(gpu) && tooMuch(tally, card));
    }

    /** Without what is merely reserved. */
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

    /** The pods that have a part of this GPU, or may have it. */
    Set<PodId> holders(String uuid) {
        var holders = new LinkedHashSet<PodId>();
        for (Claim claim : claims.values()) {
            if (claim.perGpu.containsKey(uuid) && claim.mayBeBound()) {
                holders.add(claim.pod);
            }
        }
        return holders;
    }
}
