package io.aliquot.scheduler.ledger;

import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.scheduler.ledger.Commitment.AlreadyBound;
import io.aliquot.scheduler.ledger.Commitment.Conflict;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.ledger.Commitment.Unresolved;
import io.aliquot.scheduler.ledger.Holding.State;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.placement.CandidateChooser;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.Feasibility.Refused;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuCapacity;
import io.aliquot.scheduler.placement.GpuModels;
import io.aliquot.scheduler.placement.GpuSelection.Selected;
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
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import java.util.function.Predicate;

/*
 * Each node has an account with its own lock, and a pod has a claim on at most one node. States of a claim:
 *
 *      reserve         commit          observeBound     deletedBeforeEnd
 *   -  ------> RESERVED ----> ASSUMED ------------> HELD ------> LINGERING
 *      reserveFor  RESERVED_      release |               | observeEnded |
 *   -  ------> FOR_PREEMPTOR           v               v              v
 *                (expires)        (removed)       (removed)     (observe)
 *
 * A claim that lingers is HELD again where the watch reports its pod again, because etcd was restored from a backup.
 *
 * What the watch reports (observeBound, observeEnded) applies in every state. An ASSUMED claim ends only by such a
 * report, by a definite refusal of the Binding, or by reading the pod again, because a request that was sent may have
 * taken effect.
 *
 * No timeout proves that a request that was sent can no longer be carried out: it may wait in the buffers of a server
 * that is stopped. Therefore every write is conditional on the version of the pod that the decision was based on, its
 * base. A later version of the pod shows the outcome: it contains the write, or makes the write impossible. The same
 * holds for a resize: until a version later than its base is observed, the ledger counts the larger of the amounts
 * before and after.
 *
 * Locks: first the pod, by ClaimIndex.compute(), then the node, by NodeAccounts.withAccount(). No thread locks two
 * nodes at once. The listener is called without locks.
 */
/**
 * Which pod holds how much of which GPU. The ledger never grants more than a GPU has: for every GPU the sums of memory,
 * cores and vGPUs over all claims stay within its capacity, and a whole card is granted to one pod only. Thread-safe.
 */
public final class Ledger {
    /** The answer for a node that the ledger does not know. */
    public static final Refused UNKNOWN_NODE = new Refused(NodeAccount.UNKNOWN.reason(), true);

    /** How long a reservation for a preemptor lasts unless it is renewed. */
    public static final Duration PREEMPTOR_RESERVATION_TIME = Duration.ofSeconds(30);

    /** How long a reservation between Filter and Bind lasts; kube-scheduler usually needs milliseconds. */
    public static final Duration RESERVATION_TIME = Duration.ofSeconds(5);

    /** How long the claim of a deleted pod outlasts the pod where the node is deleted too, and its agent with it. */
    static final Duration WITHOUT_NODE = Duration.ofMinutes(10);

    private final LongSupplier nanoTime;
    private final LedgerListener listener;
    private final NodeAccounts accounts = new NodeAccounts();
    private final ClaimIndex claims;
    private final Resizes resizes;
    private final DeletedPods deletedPods;

    private final AtomicLong factsChanges = new AtomicLong();
    private volatile Extremes extremes = new Extremes(-1, 0, 0, 0, true);

    /**
     * What no node exceeds.
     *
     * @param factsChanges the count of changes when this was counted
     * @param gpus the most GPUs of a node
     * @param smallestMiB the least memory of a GPU for one vGPU
     * @param largestMiB the most
     * @param coresCount whether each node shares cores
     */
    private record Extremes(long factsChanges, int gpus, int smallestMiB, int largestMiB, boolean coresCount) {}

    public Ledger(LongSupplier nanoTime, LedgerListener listener) {
        this.nanoTime = nanoTime;
        this.listener = listener;
        this.claims = new ClaimIndex(accounts, listener);
        this.resizes = new Resizes(accounts, claims, nanoTime);
        this.deletedPods = new DeletedPods(accounts, claims);
    }

    /**
     * Connects the scoring of GPUs for the placement policy {@code fragmentation}, before the first pod is placed. Without
     * it a pod with that policy gets the first candidate.
     */
    public void connect(CandidateChooser chooser) {
        accounts.connect(chooser);
    }

    // Reports of the watches.

    /** Adds or updates a node. */
    public void putNode(String name, NodeFacts facts) {
        var overallocated = new ArrayList<String>();
        boolean changed = accounts.withAccount(name, account -> {
            boolean differs = !account.facts().equals(facts);
            if (differs) {
                account.setFacts(facts);
                overallocated.addAll(account.overallocated());
            }
            return differs;
        });
        overallocated.forEach(gpu -> listener.overallocated(name, gpu));
        factsChanges.addAndGet(changed ? 1 : 0);
        if (changed && facts instanceof Sharing) {
            listener.capacityFreed(name);
        }
    }

    /** Removes a node. The ledger keeps claims on it until their pods are gone. */
    public void removeNode(String name) {
        putNode(name, NodeAccount.UNKNOWN);
    }

    /**
     * Reports whether a node's agent answers its kubelet. While it does not, the kubelet fails pods that arrive, and the
     * node's status shows only at the next report, up to 10 s later, that there are no vGPUs. An agent counts as ready
     * until the first report.
     */
    public void setAgentReady(String name, boolean ready) {
        accounts.setAgentReady(name, ready);
        applyAgentReady(name, ready);
    }

    /** Reports that a node has no agent, and so is not ready. */
    public void setAgentMissing(String name) {
        accounts.setAgentMissing(name);
        applyAgentReady(name, false);
    }

    private void applyAgentReady(String name, boolean ready) {
        boolean changed = accounts.withAccount(name, account -> {
            boolean differs = account.agentReady() != ready;
            if (differs) {
                account.setAgentReady(ready);
            }
            return differs;
        });
        if (changed && ready) {
            listener.capacityFreed(name);
        }
    }

    /** Reports a bound pod as the watch shows it; versions that are not newer than the known one are ignored. */
    public void observeBound(BoundPod pod) {
        apply(pod, State.HELD);
    }

    /**
     * Reports a bound pod that was read from the API server. Applies only if nothing newer is known: the watch may have
     * reported the pod's end already. {@link #assumedFor} lists the pod until the watch confirms it.
     */
    public void assume(BoundPod pod) {
        apply(pod, State.ASSUMED);
    }

    private void apply(BoundPod pod, State state) {
        String uid = pod.id().uid();
        var overallocated = new ArrayList<String>();
        claims.compute(uid, (before, freed) -> {
            if (before != null && !before.equals(pod.node())) {
                claims.remove(before, uid, freed);
            }
            return accounts.withAccount(pod.node(), account -> {
                apply(account, pod, state, freed, overallocated);
                return pod.node();
            });
        });
        overallocated.forEach(gpu -> listener.overallocated(pod.node(), gpu));
    }

    private void apply(NodeAccount account, BoundPod pod, State state, List<String> freed, List<String> overallocated) {
        Optional<Claim> known = account.claim(pod.id().uid());
        if (known.filter(claim -> claim.isNewerThan(pod, state)).isPresent()) {
            return;
        }
        Claim claim = known.filter(Claim::isResizing)
                .filter(resizing -> pod.version() <= resizing.base())
                .map(resizing -> resizing.stillResizing(pod))
                .orElseGet(() -> {
                    long now = nanoTime.getAsLong();
                    return Claim.observed(
                            known.filter(held -> held.state == State.HELD).isPresent() ? State.HELD : state,
                            pod,
                            known.map(held -> held.excessOf(pod, now)).orElse(Excess.NONE),
                            now);
                });
        account.put(claim);
        Map<String, GpuAmount> before = known.map(held -> held.perGpu).orElse(Map.of());
        if (!before.equals(claim.perGpu)) {
            if (!before.isEmpty()) {
                freed.add(pod.node());
            }
            account.overallocated().stream().filter(claim.perGpu::containsKey).forEach(overallocated::add);
        }
    }

    /** Reports that a pod is not bound in this version: Bindings sent for an older version cannot take effect. */
    public void observeUnbound(String uid, long version) {
        claims.removeIf(uid, claim -> claim.isBindingUnresolved() && claim.base() < version);
    }

    /** Reports that a pod has ended, or was deleted after its end. */
    public void observeEnded(String uid) {
        claims.removeIf(uid, claim -> true);
    }

    /**
     * Reports that a pod was deleted before the watch showed its end: by force, or while no watch was open. Its claim
     * stays until its node's agent has found nothing of it ({@link #observe}), since its containers may still run.
     *
     * @return whether the pod held GPUs
     */
    public boolean deletedBeforeEnd(String uid) {
        var lingers = new boolean[1];
        claims.computeIfPresent(uid, (node, freed) -> {
            lingers[0] = node != null && accounts.withAccount(node, account -> linger(account, uid));
            if (lingers[0]) {
                return node;
            }
            claims.remove(node, uid, freed);
            return null;
        });
        return lingers[0];
    }

    private boolean linger(NodeAccount account, String uid) {
        Claim claim = account.claim(uid).orElseThrow();
        boolean holds = claim.observed().isPresent() && !claim.perGpu.isEmpty();
        if (holds && claim.state != State.LINGERING) {
            account.put(claim.lingering(nanoTime.getAsLong()));
        }
        return holds;
    }

    /** Whether claims of deleted pods wait for a report of this node with its pods. */
    public boolean awaitsPods(String node) {
        return !deletedPods.of(node).isEmpty();
    }

    /**
     * Reports what a node's agent has measured. A share that a resize made smaller counts in full until each container of
     * the pod uses no more than its limit. The claim of a deleted pod ends when the node has not had the pod for
     * {@link DeletedPods#ABSENT}.
     *
     * @param askedAt when the agent was asked, in nanoseconds of the ledger's clock
     * @return the deleted pods whose claims have ended
     */
    public List<PodId> observe(UsageReport report, long askedAt) {
        NodeAccount account = accounts.find(report.node());
        if (account == null) {
            return List.of();
        }
        boolean freed;
        synchronized (account) {
            freed = account.measure(report, askedAt);
        }
        if (freed) {
            listener.capacityFreed(report.node());
        }
        return report.pods()
                .map(uids -> deletedPods.observe(report.node(), uids, askedAt))
                .orElse(List.of());
    }

    /**
     * Reports a running pod that another product placed, with the amounts of that product's record. They count while the
     * node's inventory lists the pod as a holder of HAMi, once the node's agent has measured what processes outside of all
     * shares use, which counts too. Then the pod does not close the node's other GPUs.
     */
    public void observeForeign(ForeignPod pod) {
        changeForeign(pod.node(), account -> account.putForeign(pod));
    }

    /** Reports that such a pod has ended or no longer has a readable record; no effect for other pods. */
    public void removeForeign(String node, String uid) {
        changeForeign(node, account -> account.removeForeign(uid));
    }

    private void changeForeign(String node, Predicate<NodeAccount> change) {
        boolean changed =
                accounts.withAccount(node, account -> change.test(account) && account.facts() instanceof Sharing);
        if (changed) {
            listener.capacityFreed(node);
        }
    }

    // RuntimeClasses.

    /** Adds or replaces a RuntimeClass, whose handler decides on which nodes its pods can start. */
    public void putRuntimeClass(String name, String handler) {
        if (accounts.putHandler(name, handler)) {
            runtimeClassesChanged();
        }
    }

    public void removeRuntimeClass(String name) {
        if (accounts.removeHandler(name)) {
            runtimeClassesChanged();
        }
    }

    private void runtimeClassesChanged() {
        for (String node : accounts.names()) {
            accounts.withAccount(node, account -> {
                account.runtimeClassesChanged();
                return account;
            });
            listener.capacityFreed(node);
        }
    }

    /**
     * Why a node's container runtime cannot start a pod, whatever its GPUs have free; empty if it can, or if the node takes no
     * pods now.
     */
    public Optional<Refused> runtimeRefusal(String node, PodGpuRequest request) {
        NodeAccount account = accounts.find(node);
        return account == null ? Optional.empty() : account.runtimeRefusal(request);
    }

    // Quotas.

    /** Adds or replaces a quota. What is held already counts, and stays where it is more than the quota allows. */
    public void putQuota(Quota quota) {
        accounts.quotas.put(quota);
    }

    public void removeQuota(String namespace, String name) {
        accounts.quotas.remove(namespace, name);
    }

    /** All quotas and what is used of them. */
    public List<QuotaUsage> quotas() {
        return accounts.quotas.usage();
    }

    /** Lets {@link #takeNamespacesWithRoom} return this one. */
    public void hasRoom(String namespace) {
        accounts.quotas.freed(namespace);
    }

    /** Takes the namespaces in which a quota has room again, or is gone. */
    public Set<String> takeNamespacesWithRoom() {
        return accounts.quotas.takeFreed();
    }

    /**
     * Why the quotas of its namespace allow a pod no GPUs on any node; empty if they may allow some. Amounts in percent and
     * whole cards count as on the smallest GPU of the cluster.
     */
    public Optional<String> overQuota(PodId pod, PodGpuRequest request) {
        if (!accounts.quotas.limit(pod.namespace())) {
            return Optional.empty();
        }
        Extremes gpus = extremes();
        return accounts.quotas.lacking(
                pod, request.scopes(), QuotaAmount.of(request, gpus.smallestMiB, gpus.coresCount));
    }

    /** Whether quotas may allow a pod GPUs on some nodes and not on others: what it counts for depends on the GPU. */
    public boolean quotaDependsOnNode(PodId pod, PodGpuRequest request) {
        return accounts.quotas.limit(pod.namespace())
                && accounts.quotas
                        .lacking(pod, request.scopes(), QuotaAmount.of(request, extremes().largestMiB, true))
                        .isPresent();
    }

    /**
     * Why the quotas of its namespace do not allow a pod the GPUs that it would get on this node; empty if they do, or if it
     * does not fit.
     *
     * @param without uids of pods whose GPUs count as free; quotas count them nevertheless
     */
    public Optional<String> overQuotaOn(String node, PodId pod, PodGpuRequest request, Set<String> without) {
        NodeAccount account = accounts.find(node);
        if (account == null || !accounts.quotas.limit(pod.namespace())) {
            return Optional.empty();
        }
        synchronized (account) {
            return account.select(pod.uid(), request, without) instanceof Selected selected
                    ? accounts.quotas.lacking(pod, request.scopes(), QuotaAmount.of(shares(request, selected)))
                    : Optional.empty();
        }
    }

    // Operations of the verbs.

    /** Whether a pod fits on a node now. */
    public Feasibility feasibility(String node, String uid, PodGpuRequest request) {
        return feasibilityWithout(node, uid, request, Set.of());
    }

    /**
     * Whether a pod would fit on a node if other pods were gone.
     *
     * @param without uids; those of pods on other nodes make no difference
     */
    public Feasibility feasibilityWithout(String node, String uid, PodGpuRequest request, Set<String> without) {
        NodeAccount account = accounts.find(node);
        return account == null ? UNKNOWN_NODE : account.feasibility(uid, request, without, Optional.empty());
    }

    /** Reserves capacity between Filter and Bind, for {@link #RESERVATION_TIME}, if the pod fits on the node. */
    public void reserve(PodId pod, String node, PodGpuRequest request) {
        reserve(pod, node, request, Set.of(), State.RESERVED);
    }

    /**
     * Reserves capacity that victims are about to free, for {@link #PREEMPTOR_RESERVATION_TIME}; the caller renews the
     * reservation while the pod is Pending. Until the victims are gone no pod gets the capacity, the preemptor included.
     *
     * @param victims uids
     * @return whether it is reserved; not if the pod does not fit without the victims, if a quota of its namespace, which
     *     counts the victims, has no room for it, or if it may be bound already
     */
    public boolean reserveFor(PodId pod, String node, PodGpuRequest request, Set<String> victims) {
        return reserve(pod, node, request, victims, State.RESERVED_FOR_PREEMPTOR);
    }

    /** Ends the reservation for a preemptor that is gone or goes elsewhere. */
    public void releaseReservation(String uid) {
        claims.removeIf(uid, claim -> claim.state == State.RESERVED_FOR_PREEMPTOR);
    }

    /** If the pod does not fit, its reservation ends; one for a preemptor stays, because the victims may still be running. */
    private boolean reserve(PodId pod, String node, PodGpuRequest request, Set<String> victims, State state) {
        var reserved = new boolean[1];
        claims.compute(pod.uid(), (before, freed) -> {
            Optional<Claim> known = claims.at(before, pod.uid());
            if (known.filter(Claim::mayBeBound).isPresent()) {
                return before;
            }
            reserved[0] = accounts.withAccount(node, account -> {
                if (account.select(pod.uid(), request, victims) instanceof Selected selected) {
                    return account.admit(claim(state, pod, request, selected, 0))
                            .isEmpty();
                }
                return false;
            });
            if (!reserved[0]
                    && known.filter(claim -> claim.state == State.RESERVED_FOR_PREEMPTOR)
                            .isPresent()) {
                return before;
            }
            if (!(reserved[0] && node.equals(before))) {
                claims.remove(before, pod.uid(), freed);
            }
            return reserved[0] ? node : null;
        });
        return reserved[0];
    }

    /**
     * Grants the pod the best GPUs of this node, for a Binding that must be conditional on this version of the pod. While
     * the outcome of a Binding for the same version is unknown, no other is granted.
     */
    public Commitment commit(PodId pod, String node, PodGpuRequest request, long version) {
        var result = new Commitment[1];
        claims.compute(pod.uid(), (before, freed) -> {
            Optional<Claim> known = claims.at(before, pod.uid()).filter(Claim::mayBeBound);
            if (before != null && known.isPresent()) {
                boolean lingers = known.get().state == State.LINGERING; // a backup of etcd has the pod unbound
                if (!known.get().isBindingUnresolved() && !lingers) {
                    result[0] = new AlreadyBound(before);
                    return before;
                }
                if (lingers || known.get().base() >= version) {
                    result[0] = new Unresolved(before);
                    return before;
                }
            }
            result[0] = accounts.withAccount(node, account -> grant(account, pod, request, version));
            if (result[0] instanceof Conflict) {
                return before;
            }
            if (!node.equals(before)) {
                claims.remove(before, pod.uid(), freed);
            }
            return node;
        });
        return result[0];
    }

    private Commitment grant(NodeAccount account, PodId pod, PodGpuRequest request, long version) {
        return switch (account.select(pod.uid(), request, Set.of())) {
            case Refused refused -> new Conflict(refused.reason());
            case Selected selected -> {
                Optional<String> overQuota = account.admit(claim(State.ASSUMED, pod, request, selected, version));
                if (overQuota.isPresent()) {
                    yield new Conflict(overQuota.get());
                }
                // Only a node that shares its GPUs selects some.
                yield new Granted(
                        selected.containers(),
                        QuotaAmount.held(shares(request, selected)),
                        ((Sharing) account.facts()).inventory().visibleDevices());
            }
        };
    }

    private Claim claim(State state, PodId pod, PodGpuRequest request, Selected selected, long version) {
        return Claim.of(
                state, pod, shares(request, selected), selected.perGpu(), request, version, nanoTime.getAsLong());
    }

    private static List<ContainerShare> shares(PodGpuRequest request, Selected selected) {
        return request.containers().stream()
                .map(container -> new ContainerShare(
                        container.name(),
                        container.kind(),
                        Objects.requireNonNull(selected.containers().get(container.name()))))
                .toList();
    }

    /** The Binding for this version of the pod was definitely refused, or another one took effect elsewhere. */
    public void release(String uid, long version) {
        claims.removeIf(uid, claim -> claim.isBindingUnresolved() && claim.base() == version);
    }

    /** Removes the claim of an assumed pod that the API server no longer has; a claim that the watch reported stays. */
    public void discardAssumed(String uid) {
        claims.removeIf(uid, Claim::isAssumed);
    }

    /**
     * Prepares a change of what a pod holds. A pod can always shrink; to grow, free capacity is needed as for a new pod.
     * On a GPU that is shared by memory only, cores can only be set to 0.
     *
     * @throws io.aliquot.api.format.FormatException if the changes are not possible for this pod
     */
    public Resizing resize(String uid, List<ContainerShareChange> changes) {
        return resizes.prepare(uid, changes);
    }

    /** The resize for this version of the pod was definitely refused. */
    public void rollbackResize(String uid, long version) {
        resizes.rollback(uid, version);
    }

    // Periodic work.

    /** Removes claims whose time is over. */
    public void expire() {
        long now = nanoTime.getAsLong();
        for (PodId pod : claims.podsWhere(claim -> expired(claim, now))) {
            claims.removeIf(pod.uid(), claim -> expired(claim, now));
        }
    }

    private boolean expired(Claim claim, long now) {
        return lifetime(claim)
                .filter(lifetime -> now - claim.since > lifetime.toNanos())
                .isPresent();
    }

    private Optional<Duration> lifetime(Claim claim) {
        return switch (claim.state) {
            case RESERVED -> Optional.of(RESERVATION_TIME);
            case RESERVED_FOR_PREEMPTOR -> Optional.of(PREEMPTOR_RESERVATION_TIME);
            case LINGERING ->
                claim.observed().filter(pod -> isUnknown(pod.node())).map(pod -> WITHOUT_NODE);
            case ASSUMED, HELD -> Optional.empty();
        };
    }

    private boolean isUnknown(String node) {
        NodeAccount account = accounts.find(node);
        return account == null || account.facts().equals(NodeAccount.UNKNOWN);
    }

    /** The version of the pod for which a write was sent whose outcome is unknown. */
    public OptionalLong unresolvedBase(String uid) {
        return claims.find(uid)
                .filter(claim -> claim.isBindingUnresolved() || claim.isResizing())
                .map(claim -> OptionalLong.of(claim.base()))
                .orElse(OptionalLong.empty());
    }

    /** Pods that are assumed, or whose resize is unresolved, for this long or longer. */
    public List<PodId> assumedFor(Duration age) {
        long now = nanoTime.getAsLong();
        return claims.podsWhere(
                claim -> (claim.isAssumed() || claim.isResizing()) && now - claim.since >= age.toNanos());
    }

    // Queries.

    /** The node of the pod's claim, in any state. */
    public Optional<String> nodeOf(String uid) {
        return claims.nodeOf(uid);
    }

    /** A pod in the newest version in which the watch or a read has shown it bound. */
    public Optional<BoundPod> bound(String uid) {
        return claims.find(uid).flatMap(Claim::observed);
    }

    /** The node of an assumed pod: a Binding was sent, or the pod was read, and the watch has not reported it yet. */
    public Optional<String> assumedNode(String uid) {
        return claims.nodeOf(uid)
                .filter(node -> claims.at(node, uid).filter(Claim::isAssumed).isPresent());
    }

    /** The pods that hold a part of this GPU, or may hold it. */
    public Set<PodId> holders(String node, String gpu) {
        NodeAccount account = accounts.find(node);
        if (account == null) {
            return Set.of();
        }
        synchronized (account) {
            return account.holders(gpu);
        }
    }

    /** Whether a pod holds a share of this node's GPUs, or may hold it; a reservation is none. */
    public boolean holdsShares(String node) {
        NodeAccount account = accounts.find(node);
        if (account == null) {
            return false;
        }
        synchronized (account) {
            return account.holdsShares();
        }
    }

    /** Whether these pods together hold more of a GPU than its capacity. */
    public boolean overallocated(String node, String gpu, Collection<BoundPod> holders) {
        NodeAccount account = accounts.find(node);
        if (account == null) {
            return false;
        }
        synchronized (account) {
            return account.overallocated(gpu, holders);
        }
    }

    /** The requests of all bound pods with GPUs, oldest pod first. */
    public List<PodGpuRequest> boundRequests() {
        var bound = new ArrayList<BoundPod>();
        for (NodeAccount account : accounts.all()) {
            synchronized (account) {
                account.claims().forEach(claim -> claim.observed().ifPresent(bound::add));
            }
        }
        bound.removeIf(pod -> pod.shares().isEmpty());
        bound.sort(Comparator.comparing(BoundPod::created)
                .thenComparing(pod -> pod.id().namespace())
                .thenComparing(pod -> pod.id().name()));
        return bound.stream().map(BoundPod::request).toList();
    }

    /** The most GPUs that any node has. */
    public int maxGpusPerNode() {
        return extremes().gpus;
    }

    private Extremes extremes() {
        Extremes known = extremes;
        long changes = factsChanges.get();
        if (known.factsChanges != changes) {
            known = countExtremes(changes);
            extremes = known;
        }
        return known;
    }

    private Extremes countExtremes(long changes) {
        int most = 0;
        int smallestMiB = Integer.MAX_VALUE;
        int largestMiB = 0;
        boolean coresCount = true;
        for (NodeAccount account : accounts.all()) {
            synchronized (account) {
                if (account.facts() instanceof Sharing sharing) {
                    most = Math.max(most, sharing.inventory().gpus().size());
                    for (GpuCapacity gpu : account.gpuCapacities()) {
                        smallestMiB = Math.min(smallestMiB, gpu.vgpuMiB());
                        largestMiB = Math.max(largestMiB, gpu.vgpuMiB());
                        coresCount &= gpu.sharingMode() != SharingMode.MEMORY;
                    }
                }
            }
        }
        return new Extremes(changes, most, Math.min(smallestMiB, largestMiB), largestMiB, coresCount);
    }

    /** The known nodes, in no order. */
    public List<String> nodeNames() {
        return accounts.names();
    }

    public int nodeCount() {
        return accounts.all().size();
    }

    /** Free capacities of all nodes that take pods, in no order. */
    public List<FreeCapacity> freeCapacities() {
        var all = new ArrayList<FreeCapacity>();
        for (NodeAccount account : accounts.all()) {
            account.freeCapacity().ifPresent(all::add);
        }
        return all;
    }

    /** Whether the GPUs of this node are Aliquot's to share; true for a node that the ledger does not know. */
    public boolean sharesGpus(String node) {
        NodeAccount account = accounts.find(node);
        return account == null || !(account.facts() instanceof NodeFacts.Unavailable facts && facts.othersGpus());
    }

    /** A snapshot of a node. */
    public Optional<NodeView> view(String node) {
        NodeAccount account = accounts.find(node);
        if (account == null) {
            return Optional.empty();
        }
        synchronized (account) {
            var holdings = new ArrayList<Holding>();
            account.claims().forEach(claim -> holdings.add(claim.holding()));
            return Optional.of(
                    new NodeView(node, account.facts(), account.agentReady(), account.freeCapacities(), holdings));
        }
    }

    /** A number that differs after every change of what {@link #view} returns; -1 if the ledger does not know the node. */
    public long revision(String node) {
        NodeAccount account = accounts.find(node);
        return account == null ? -1 : account.revision();
    }

    /**
     * Whether a change of what a pod holds would be granted now; changes nothing.
     *
     * @throws io.aliquot.api.format.FormatException if the changes are not possible for this pod
     */
    public Resizing checkResize(String uid, List<ContainerShareChange> changes) {
        return resizes.check(uid, changes);
    }

    /** A node's account; empty if the ledger does not know the node. */
    public Optional<NodeAccountView> account(String node) {
        return Optional.ofNullable(accounts.find(node));
    }

    /** The numbers of the GPU models in free capacities and demands of this ledger. */
    public GpuModels models() {
        return accounts.models;
    }
}
