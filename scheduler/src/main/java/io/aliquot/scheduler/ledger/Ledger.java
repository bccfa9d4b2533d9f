package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.ledger.Commitment.AlreadyBound;
import io.aliquot.scheduler.ledger.Commitment.Conflict;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.ledger.Commitment.Undecided;
import io.aliquot.scheduler.ledger.Holding.State;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.placement.CandidateChooser;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuModels;
import io.aliquot.scheduler.placement.GpuSelection;
import io.aliquot.scheduler.placement.GpuSelection.Refused;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import java.util.function.Predicate;

/*
 * Each node is an account with a lock of its own, and a pod has a claim on at most one node. A claim's life:
 *
 *      expect          commit          hold        vanish
 *   -  ------> EXPECTED ----> ASSUMED ------> HELD ------> LINGERING
 *      keepFor KEPT          release |          | forget       |
 *         (gone by itself)           v          v              v
 *                                  (gone)     (gone)   (gone by itself)
 *
 * The cluster's word (hold, forget) goes from any state. Only it, a definite refusal of the Binding, or a reading of
 * the pod ends an ASSUMED claim: what was sent may have been done.
 *
 * No clock says when a request that was sent cannot be carried out any more: it may lie in the buffers of a server that
 * stands still. So every write is conditional on the version of the pod that it was decided on, its base. Whoever has
 * seen a later version knows the outcome, for this version shows it or has made it impossible. A resize is the same: it
 * is counted as the larger of before and after until a version later than its base is seen.
 *
 * An account is closed when its node is not known and nobody has a claim there; whoever has found it before that and
 * gets its lock after looks again.
 *
 * whereIs tells a pod's node, and its compute() serializes all that happens to one pod. Locks are taken in the order
 * pod, node; two nodes are never locked at once.
 */
/**
 * Who holds how much of which GPU. Never grants more than a GPU has: for every GPU the sum of memory, cores and vGPUs
 * over all claims stays within its capacity, and a whole card is nobody else's. Thread-safe.
 */
public final class Ledger {
    /** How long room is kept that others were made to leave, unless the keeping is renewed. */
    public static final Duration KEPT_FOR = Duration.ofSeconds(30);

    /**
     * A kubelet gives a container whose preStop hook used up the grace period 2 s more (k8s.io/kubernetes,
     * pkg/kubelet/kuberuntime, minimumGracePeriodInSeconds), and it must hear of the deletion first.
     */
    static final Duration LATE = Duration.ofSeconds(3);

    /** How long a place is kept free between Filter and Bind; kube-scheduler usually needs milliseconds. */
    public static final Duration EXPECTED_FOR = Duration.ofSeconds(5);

    private final LongSupplier nanoTime;
    private final LedgerListener listener;
    private final NodeAccounts accounts = new NodeAccounts();
    private final Map<String, String> whereIs = new ConcurrentHashMap<>();
    private final AtomicLong factsChanges = new AtomicLong();
    private volatile Most most = new Most(-1, 0);

    /** The most GPUs that a node has, after so many changes. */
    private record Most(long changes, int gpus) {}

    public Ledger(LongSupplier nanoTime, LedgerListener listener) {
        this.nanoTime = nanoTime;
        this.listener = listener;
    }

    /**
     * Connects what scores nodes and chooses GPUs where the placement policy is {@code fragmentation}; to be called before
     * the first pod is placed. Unconnected, such a pod gets the first candidate.
     */
    public void connect(NodeObserver observer, CandidateChooser chooser) {
        accounts.connect(observer, chooser);
    }

    /** A node's account; empty if the ledger does not know the node. */
    public Optional<NodeAccountView> account(String node) {
        return Optional.ofNullable(accounts.find(node));
    }

    /** The change counts of all accounts, by their numbers. */
    public ChangeCounter changes() {
        return accounts.changes;
    }

    /** How many nodes there are. */
    public int nodeCount() {
        return accounts.all().size();
    }

    /** The GPU models of all nodes, by which free capacities and demands are numbered. */
    public GpuModels models() {
        return accounts.models;
    }

    // What the cluster tells.

    /** A node is new or may have changed. */
    public void putNode(String name, NodeFacts facts) {
        var oversold = new ArrayList<String>();
        boolean changed = accounts.withAccount(name, account -> {
            boolean differs = !account.facts().equals(facts);
            if (differs) {
                account.setFacts(facts);
                oversold.addAll(account.overallocated());
            }
            return differs;
        });
        oversold.forEach(gpu -> listener.overallocated(name, gpu));
        factsChanges.addAndGet(changed ? 1 : 0);
        if (changed && facts instanceof Sharing) {
            listener.capacityFreed(name);
        }
    }

    /**
     * A node's agent answers its kubelet, or doesn't. The kubelet fails a pod that reaches it in the meantime, and shows
     * only at its next report, up to 10 s later, that it has no vGPUs. Until this is first called the agent is taken to
     * answer.
     */
    public void setAgentReady(String name, boolean served) {
        accounts.setAgentReady(name, served);
        applyAgentReady(name, served);
    }

    /** A node has no agent any more. It is not served, for as long as it stays. */
    public void setAgentMissing(String name) {
        accounts.setAgentMissing(name);
        applyAgentReady(name, false);
    }

    private void applyAgentReady(String name, boolean served) {
        boolean changed = accounts.withAccount(name, account -> {
            boolean differs = account.served() != served;
            if (differs) {
                account.setServed(served);
            }
            return differs;
        });
        if (changed && served) {
            listener.capacityFreed(name);
        }
    }

    /** A node is gone. What pods hold there is kept until they are gone too. */
    public void removeNode(String name) {
        putNode(name, NodeAccount.UNKNOWN);
    }

    /** A pod is bound, or is still. Repeating it changes nothing, nor do old news; what it holds may change. */
    public void observeBound(BoundPod pod) {
        apply(pod, State.HELD);
    }

    /**
     * A pod was read as bound, beside the watch that calls {@link #observeBound} and may have told of its end already. Believed
     * where nothing newer is known, and listed by {@link #unconfirmed} until the watch confirms it.
     */
    public void assume(BoundPod pod) {
        apply(pod, State.ASSUMED);
    }

    private void apply(BoundPod pod, State as) {
        String uid = pod.id().uid();
        var freed = new ArrayList<String>();
        var oversold = new ArrayList<String>();
        whereIs.compute(uid, (key, before) -> {
            if (before != null && !before.equals(pod.node())) {
                removeClaim(before, uid, freed);
            }
            return accounts.withAccount(pod.node(), account -> {
                apply(account, pod, as, freed, oversold);
                return pod.node();
            });
        });
        freed.forEach(listener::capacityFreed);
        oversold.forEach(gpu -> listener.overallocated(pod.node(), gpu));
    }

    private void apply(NodeAccount account, BoundPod news, State as, List<String> freed, List<String> oversold) {
        Optional<Claim> known = account.claim(news.id().uid());
        if (known.filter(claim -> claim.outdates(news, as)).isPresent()) {
            return;
        }
        BoundPod pod = known.flatMap(Claim::told).map(news::after).orElse(news);
        Claim claim = known.filter(Claim::resizes)
                .filter(resized -> pod.version() <= resized.base())
                .map(resized -> resized.stillResizing(pod))
                .orElseGet(() -> Claim.told(
                        known.filter(held -> held.state == State.HELD).isPresent() ? State.HELD : as,
                        pod,
                        nanoTime.getAsLong()));
        account.put(claim);
        Map<String, GpuAmount> earlier = known.map(held -> held.perGpu).orElse(Map.of());
        if (!earlier.equals(claim.perGpu)) {
            if (!earlier.isEmpty()) {
                freed.add(pod.node());
            }
            account.overallocated().stream().filter(claim.perGpu::containsKey).forEach(oversold::add);
        }
    }

    /**
     * A pod was heard of that is not bound in this version: no Binding that was sent for an older one can take effect
     * any more.
     */
    public void observeUnbound(String uid, long version) {
        removeClaimIf(uid, claim -> claim.sent() && claim.base() < version);
    }

    /** A pod has ended, or is gone and had ended before. */
    public void observeEnded(String uid) {
        removeClaimIf(uid, claim -> true);
    }

    /**
     * A pod is gone, and the cluster has not told of its end: somebody deleted it by force. What it held is held for its
     * grace period, for so long its node may take to end its containers.
     *
     * @return whether it held anything
     */
    public boolean deletedBeforeEnd(String uid) {
        var freed = new ArrayList<String>();
        String lingersAt = whereIs.computeIfPresent(uid, (key, node) -> {
            boolean lingers = accounts.withAccount(node, account -> {
                Claim claim = account.claim(uid).orElseThrow();
                boolean holds = claim.told().isPresent() && !claim.perGpu.isEmpty();
                if (holds && claim.state != State.LINGERING) {
                    account.put(claim.lingering(nanoTime.getAsLong()));
                }
                return holds;
            });
            if (lingers) {
                return node;
            }
            removeClaim(node, uid, freed);
            return null;
        });
        freed.forEach(listener::capacityFreed);
        return lingersAt != null;
    }

    // What the verbs do.

    /** What a node would say to this pod now. */
    public Feasibility feasibility(String node, String uid, PodGpuRequest ask) {
        return feasibilityWithout(node, uid, ask, Set.of());
    }

    /** What the pods ask for that have their nodes, oldest first. */
    public List<PodGpuRequest> boundRequests() {
        var placed = new ArrayList<BoundPod>();
        for (NodeAccount account : accounts.all()) {
            synchronized (account) {
                account.claims().forEach(claim -> claim.told().ifPresent(placed::add));
            }
        }
        placed.removeIf(pod -> pod.shares().isEmpty());
        placed.sort(Comparator.comparing(BoundPod::created)
                .thenComparing(pod -> pod.id().namespace())
                .thenComparing(pod -> pod.id().name()));
        return placed.stream().map(BoundPod::ask).toList();
    }

    /**
     * As {@link #feasibility}, if the pods {@code without} were gone. Those that are not on this node make no difference.
     *
     * @param without uids
     */
    public Feasibility feasibilityWithout(String node, String uid, PodGpuRequest ask, Set<String> without) {
        NodeAccount account = accounts.find(node);
        if (account == null) {
            return Feasibility.UNKNOWN_NODE;
        }
        return account.feasibility(uid, ask, without, Optional.empty());
    }

    /** Keeps room on the node where the pod will probably go, for {@link #EXPECTED_FOR}, if it fits there. */
    public void reserve(PodId pod, String node, PodGpuRequest ask) {
        reserve(pod, node, ask, Set.of(), Claim::expected);
    }

    /**
     * Keeps the room for this pod that others make who were told to leave, for {@link #KEPT_FOR}; to be called again
     * before that while the pod still waits. Until they have left nobody else gets it, and nor does the pod.
     *
     * @param without uids of those who were told to leave
     * @return whether it is kept; not where the pod doesn't fit even without them, or may be bound already
     */
    public boolean reserveFor(PodId pod, String node, PodGpuRequest ask, Set<String> without) {
        return reserve(pod, node, ask, without, Claim::kept);
    }

    /** Nothing needs to be kept for this pod any more: it is gone, or will go elsewhere. */
    public void releaseReservation(String uid) {
        removeClaimIf(uid, claim -> claim.state == State.KEPT);
    }

    private interface Reservation {
        Claim of(PodId pod, Map<String, GpuAmount> perGpu, HostResources requests, long now);
    }

    /** Where it doesn't fit any more what was expected ends, but not what is kept: those others may not have left yet. */
    private boolean reserve(PodId pod, String node, PodGpuRequest ask, Set<String> without, Reservation reservation) {
        update(node, ask);
        var freed = new ArrayList<String>();
        var reserved = new boolean[1];
        whereIs.compute(pod.uid(), (uid, before) -> {
            Optional<Claim> known = before == null ? Optional.empty() : accounts.claim(before, uid);
            if (known.filter(Claim::mayBeBound).isPresent()) {
                return before;
            }
            reserved[0] = accounts.withAccount(node, account -> {
                if (account.select(uid, ask, without) instanceof GpuSelection.Selected chosen) {
                    account.put(reservation.of(pod, chosen.perGpu(), ask.requests(), nanoTime.getAsLong()));
                    return true;
                }
                return false;
            });
            if (!reserved[0] && known.filter(claim -> claim.state == State.KEPT).isPresent()) {
                return before;
            }
            if (before != null && !(reserved[0] && before.equals(node))) {
                removeClaim(before, uid, freed);
            }
            return reserved[0] ? node : null;
        });
        freed.forEach(listener::capacityFreed);
        return reserved[0];
    }

    /** The node of the pod's claim, whatever its state. */
    public Optional<String> nodeOf(String uid) {
        return Optional.ofNullable(whereIs.get(uid));
    }

    /** Where a Binding of this pod was sent, or read, that the cluster has not told of yet. */
    public Optional<String> unsettled(String uid) {
        return Optional.ofNullable(whereIs.get(uid))
                .filter(node -> accounts.claim(node, uid)
                        .filter(claim -> claim.state == State.ASSUMED)
                        .isPresent());
    }

    /**
     * Gives the pod the best GPUs of this node, for good, for a Binding that must be conditional on this version of the
     * pod. While the outcome of one for the same version is not known there is no other.
     */
    public Commitment commit(PodId pod, String node, PodGpuRequest ask, long version) {
        update(node, ask);
        var freed = new ArrayList<String>();
        var answer = new Commitment[1];
        whereIs.compute(pod.uid(), (uid, before) -> {
            Optional<Claim> known = before == null ? Optional.empty() : accounts.claim(before, uid);
            if (known.filter(Claim::mayBeBound).isPresent()) {
                Claim claim = known.get();
                if (!claim.sent()) {
                    answer[0] = new AlreadyBound(before);
                    return before;
                }
                if (claim.base() >= version) {
                    answer[0] = new Undecided(before);
                    return before;
                }
            }
            answer[0] = accounts.withAccount(node, account -> grant(account, pod, ask, version));
            if (answer[0] instanceof Conflict) {
                return before;
            }
            if (before != null && !before.equals(node)) {
                removeClaim(before, uid, freed);
            }
            return node;
        });
        freed.forEach(listener::capacityFreed);
        return answer[0];
    }

    private Commitment grant(NodeAccount account, PodId pod, PodGpuRequest ask, long version) {
        GpuSelection choice = account.select(pod.uid(), ask, Set.of());
        if (!(choice instanceof GpuSelection.Selected chosen && account.facts() instanceof Sharing sharing)) {
            return new Conflict(((Refused) choice).reason());
        }
        var granted = new Granted(chosen.containers(), sharing.inventory().visibleDevices());
        account.put(Claim.assumed(
                pod, shares(ask, granted), chosen.perGpu(), ask.requests(), version, nanoTime.getAsLong()));
        return granted;
    }

    /** Before a node is locked whose GPUs the judge is to choose from. */
    private void update(String node, PodGpuRequest ask) {
        NodeAccount account = accounts.find(node);
        if (account != null && account.judgesGpus(ask)) {
            accounts.refreshChooser();
        }
    }

    private static List<ContainerAllocation> shares(PodGpuRequest ask, Granted granted) {
        return ask.containers().stream()
                .map(container -> new ContainerAllocation(
                        container.name(),
                        container.kind(),
                        Objects.requireNonNull(granted.containers().get(container.name()))))
                .toList();
    }

    /** The Binding for this version of the pod was refused for certain, or another one had its effect elsewhere. */
    public void release(String uid, long version) {
        removeClaimIf(uid, claim -> claim.sent() && claim.base() == version);
    }

    /** A pod that was read beside the watch was read again, and is gone. What the watch told is left alone. */
    public void discardAssumed(String uid) {
        removeClaimIf(uid, claim -> claim.state == State.ASSUMED);
    }

    /**
     * Prepares to change what a pod holds of its GPUs. Shrinking always is possible; where it grows there must be as
     * much, as for a new pod. Where memory alone is shared cores can only be given up.
     *
     * @throws io.aliquot.api.FormatException where the changes make no sense for this pod
     */
    public Resizing resize(String uid, List<AllocationChange> changes) {
        var answer = new Resizing[] {new Resizing.Unknown()};
        whereIs.computeIfPresent(uid, (key, node) -> {
            answer[0] = accounts.withAccount(node, account -> resize(account, uid, node, changes));
            return node;
        });
        return answer[0];
    }

    private Resizing resize(NodeAccount account, String uid, String node, List<AllocationChange> changes) {
        Claim claim = account.claim(uid).orElseThrow();
        Optional<BoundPod> told = claim.told();
        if (told.isEmpty() || claim.state == State.LINGERING) {
            return new Resizing.Unknown();
        }
        if (claim.resizes()) {
            return new Resizing.Undecided();
        }
        BoundPod pod = told.get();
        List<ContainerAllocation> wanted = AllocationChange.apply(changes, pod.shares());
        if (wanted.equals(pod.shares())) {
            return new Resizing.Unchanged();
        }
        Claim resizing = claim.resizing(pod, wanted, nanoTime.getAsLong());
        Optional<String> obstacle =
                account.unsuitable(pod.shares(), wanted).or(() -> account.lacking(claim, resizing.perGpu));
        if (obstacle.isPresent()) {
            return new Resizing.Refused(obstacle.get());
        }
        account.put(resizing);
        return new Resizing.Prepared(pod.id(), node, pod.version(), wanted);
    }

    /** The resize for this version of the pod was refused for certain. */
    public void rollbackResize(String uid, long version) {
        var freed = new ArrayList<String>();
        whereIs.computeIfPresent(uid, (key, node) -> {
            boolean undone = accounts.withAccount(node, account -> {
                Optional<Claim> resizing =
                        account.claim(uid).filter(claim -> claim.resizes() && claim.base() == version);
                resizing.ifPresent(claim ->
                        account.put(Claim.told(claim.state, claim.told().orElseThrow(), claim.since)));
                return resizing.isPresent();
            });
            if (undone) {
                freed.add(node);
            }
            return node;
        });
        freed.forEach(listener::capacityFreed);
    }

    // What has to be done from time to time.

    /** Ends what lasts for a time only, once that is over. */
    public void expire() {
        long now = nanoTime.getAsLong();
        for (PodId pod : claims(claim -> expired(claim, now))) {
            removeClaimIf(pod.uid(), claim -> expired(claim, now));
        }
    }

    private static boolean expired(Claim claim, long now) {
        return lasts(claim).filter(time -> now - claim.since > time.toNanos()).isPresent();
    }

    private static Optional<Duration> lasts(Claim claim) {
        return switch (claim.state) {
            case EXPECTED -> Optional.of(EXPECTED_FOR);
            case KEPT -> Optional.of(KEPT_FOR);
            case LINGERING -> claim.told().map(pod -> pod.grace().plus(LATE));
            case ASSUMED, HELD -> Optional.empty();
        };
    }

    /** The version of the pod that a write of ours was sent for whose outcome is not known. */
    public OptionalLong unresolvedBase(String uid) {
        return Optional.ofNullable(whereIs.get(uid))
                .flatMap(node -> accounts.claim(node, uid))
                .filter(claim -> claim.sent() || claim.resizes())
                .map(claim -> OptionalLong.of(claim.base()))
                .orElse(OptionalLong.empty());
    }

    /** Pods of which something was sent or read that long ago, and the watch has not told what became of it. */
    public List<PodId> unconfirmed(Duration age) {
        long now = nanoTime.getAsLong();
        return claims(claim -> (claim.state == State.ASSUMED || claim.resizes()) && now - claim.since >= age.toNanos());
    }

    // What others want to know.

    /** The pods that have a part of this GPU, or may have it. */
    public Set<PodId> holders(String node, String gpu) {
        NodeAccount account = accounts.find(node);
        if (account == null) {
            return Set.of();
        }
        synchronized (account) {
            return account.holders(gpu);
        }
    }

    /** Whether these pods together hold more of a GPU than it has. */
    public boolean overallocated(String node, String gpu, Collection<BoundPod> holders) {
        NodeAccount account = accounts.find(node);
        if (account == null) {
            return false;
        }
        synchronized (account) {
            return account.overallocated(gpu, holders);
        }
    }

    /** The most GPUs that a node has. */
    public int maxGpusPerNode() {
        Most known = most;
        long changes = factsChanges.get();
        if (known.changes != changes) {
            known = new Most(changes, countMaxGpusPerNode());
            most = known;
        }
        return known.gpus;
    }

    private int countMaxGpusPerNode() {
        int most = 0;
        for (NodeAccount account : accounts.all()) {
            synchronized (account) {
                if (account.facts() instanceof Sharing sharing) {
                    most = Math.max(most, sharing.inventory().gpus().size());
                }
            }
        }
        return most;
    }

    /** The nodes that it knows, in no order. */
    public List<String> nodeNames() {
        return accounts.names();
    }

    /** A node as it is now. */
    public Optional<NodeView> view(String node) {
        NodeAccount account = accounts.find(node);
        if (account == null) {
            return Optional.empty();
        }
        long now = nanoTime.getAsLong();
        synchronized (account) {
            var holdings = new ArrayList<Holding>();
            account.claims().forEach(claim -> holdings.add(claim.holding(now)));
            return Optional.of(
                    new NodeView(node, account.facts(), account.served(), account.freeCapacities(), holdings));
        }
    }

    private List<PodId> claims(Predicate<Claim> which) {
        var pods = new ArrayList<PodId>();
        for (NodeAccount account : accounts.all()) {
            synchronized (account) {
                for (Claim claim : account.claims()) {
                    if (which.test(claim)) {
                        pods.add(claim.pod);
                    }
                }
            }
        }
        return pods;
    }

    private void removeClaimIf(String uid, Predicate<Claim> which) {
        var freed = new ArrayList<String>();
        whereIs.computeIfPresent(uid, (key, node) -> {
            if (accounts.claim(node, uid).filter(which).isEmpty()) {
                return node;
            }
            removeClaim(node, uid, freed);
            return null;
        });
        freed.forEach(listener::capacityFreed);
    }

    private void removeClaim(String node, String uid, List<String> freed) {
        if (accounts.withAccount(node, account -> account.remove(uid).filter(claim -> !claim.perGpu.isEmpty()))
                .isPresent()) {
            freed.add(node);
        }
    }
}
