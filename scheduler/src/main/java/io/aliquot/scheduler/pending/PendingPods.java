package io.aliquot.scheduler.pending;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import com.github.benmanes.caffeine.cache.Interner;
import io.aliquot.scheduler.cluster.Cluster.PodState.Unbound;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.pending.NodeSets.NodeSet;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.springframework.stereotype.Component;

/**
 * Requests of the pods that kube-scheduler is placing, and which of them are pending. kube-scheduler sends a pod with
 * Filter only, so Bind looks its request up here. Bounded: Bind reads an evicted entry from the API server, and
 * kube-scheduler retries a pending pod every five minutes in any case. Pods that kube-scheduler marks Unschedulable are
 * kept too: if its own filters leave no node, for example because every node lacks CPU, it does not call the extender.
 * Thread-safe.
 */
@Component
public final class PendingPods {
    private static final int MAX_ENTRIES = 20_000;

    /**
     * What pods of one kind have in common: request, rank and feasible nodes. Thousands of pods share one object.
     *
     * @param nodes those that kube-scheduler sent, which means that its own filters accept them
     * @param overQuotaIn the namespace whose quotas refused the pod when kube-scheduler asked last, or may refuse it while
     *     filter evaluates it; empty if none did
     */
    public record PodKind(PodGpuRequest request, PreemptionRank rank, NodeSet nodes, String overQuotaIn) {
        /** The nodes by name; {@code all} if the pod may run on any node. */
        public Collection<String> nodesOr(Supplier<? extends Collection<String>> all) {
            Collection<String> named = nodes.names();
            return named.isEmpty() ? all.get() : named;
        }
    }

    /**
     * A pending pod.
     *
     * @param lastFiltered when kube-scheduler asked about the pod last, in nanoseconds of the injected clock
     */
    public record PendingPod(PodId pod, PodKind kind, long lastFiltered) {}

    /** Whether filter leaves a pod a node; {@link #OVER_QUOTA} if it may fit on a node and a quota refuses it. */
    public enum FilterOutcome {
        FITS,
        DOES_NOT_FIT,
        OVER_QUOTA
    }

    /** {@code version} is the resourceVersion of the pod. */
    private record Entry(PendingPod pod, long version, boolean pending) {}

    private final LongSupplier nanoTime;
    private final NodeSets nodeSets = new NodeSets();
    private final Interner<PodKind> interned = Interner.newWeakInterner();
    private final Cache<String, Entry> entries = Caffeine.newBuilder()
            .maximumSize(MAX_ENTRIES)
            .expireAfterWrite(Duration.ofMinutes(15))
            // Maintenance costs less than waking another thread for it, three times a pod.
            .executor(Runnable::run)
            .build();

    /**
     * Forgotten pods by uid. kube-scheduler may still call a verb for such a pod: it learns of the end of a pod later
     * than this process, or its call was on the way.
     */
    private final Cache<String, Boolean> forgotten = Caffeine.newBuilder()
            .maximumSize(MAX_ENTRIES)
            .expireAfterWrite(Duration.ofMinutes(1))
            .executor(Runnable::run)
            .build();

    /** Pods that kube-scheduler marked Unschedulable, by uid. */
    private final Map<String, PendingPod> unschedulable = new ConcurrentHashMap<>();

    public PendingPods(LongSupplier nanoTime) {
        this.nanoTime = nanoTime;
    }

    /**
     * Records a pod that filter evaluates. Until filter has a result it counts as pending on any node, and for a quota of
     * its namespace: what is freed meanwhile must find it.
     */
    public void observe(UnboundPod pod) {
        put(pod, kind(pod, nodeSets.everywhere(), pod.id().namespace()), true);
    }

    /**
     * Records the result of filter.
     *
     * @param nodes all that the filters of kube-scheduler accept
     */
    public void record(UnboundPod pod, FilterOutcome outcome, Collection<String> nodes) {
        boolean fits = outcome == FilterOutcome.FITS;
        String overQuotaIn = outcome == FilterOutcome.OVER_QUOTA ? pod.id().namespace() : "";
        put(pod, kind(pod, fits ? nodeSets.everywhere() : nodeSets.of(nodes), overQuotaIn), !fits);
    }

    /** Records that the pod no longer fits on the node that was chosen for it. */
    public void doesNotFit(PodId pod, Unbound known) {
        Entry before = entries.getIfPresent(pod.uid());
        PreemptionRank rank =
                before == null ? PreemptionRank.LOWEST : before.pod().kind().rank();
        var unbound = new UnboundPod(pod, known.at(), rank, known.request());
        put(unbound, kind(unbound, nodeSets.everywhere(), ""), true);
    }

    /** Records a pod for which pods are evicted and which filter may never have evaluated; an existing entry stays. */
    public void holdsCapacity(UnboundPod pod) {
        entries.asMap().putIfAbsent(pod.id().uid(), entry(pod, kind(pod, nodeSets.everywhere(), ""), false));
    }

    /** Records that kube-scheduler marked the pod Unschedulable, perhaps without calling the extender. */
    public void markedUnschedulable(PodId pod, PodGpuRequest request) {
        unschedulable.put(
                pod.uid(), pendingPod(pod, new PodKind(request, PreemptionRank.LOWEST, nodeSets.everywhere(), "")));
    }

    private static PodKind kind(UnboundPod pod, NodeSet nodes, String overQuotaIn) {
        return new PodKind(pod.request(), pod.rank(), nodes, overQuotaIn);
    }

    private void put(UnboundPod pod, PodKind kind, boolean pending) {
        String uid = pod.id().uid();
        entries.put(uid, entry(pod, kind, pending));
        if (forgotten.getIfPresent(uid) != null) {
            entries.invalidate(uid);
        }
    }

    private Entry entry(UnboundPod pod, PodKind kind, boolean pending) {
        return new Entry(pendingPod(pod.id(), kind), pod.version(), pending);
    }

    private PendingPod pendingPod(PodId pod, PodKind kind) {
        return new PendingPod(pod, interned.intern(kind), nanoTime.getAsLong());
    }

    /** The request of the pod when filter evaluated it last. */
    public Optional<Unbound> known(String uid) {
        return Optional.ofNullable(entries.getIfPresent(uid))
                .map(entry -> new Unbound(entry.version(), entry.pod().kind().request()));
    }

    public Optional<PodGpuRequest> request(String uid) {
        return known(uid).map(Unbound::request);
    }

    /** Removes a pod that is bound, has ended or is deleted. */
    public void forget(String uid) {
        forgotten.put(uid, true); // first: put() checks it after it adds the entry
        entries.invalidate(uid);
        unschedulable.remove(uid);
    }

    public List<PendingPod> pending() {
        return entries.asMap().values().stream()
                .filter(Entry::pending)
                .map(Entry::pod)
                .toList();
    }

    /** Pods pending after filter or by the condition of kube-scheduler; if both, the entry of filter. */
    public Collection<PendingPod> allPending() {
        var all = new HashMap<>(unschedulable);
        pending().forEach(pod -> all.put(pod.pod().uid(), pod));
        return all.values();
    }

    public Optional<PendingPod> pending(String uid) {
        return Optional.ofNullable(entries.getIfPresent(uid))
                .filter(Entry::pending)
                .map(Entry::pod);
    }

    /** The nodes that the filters of kube-scheduler accept for the pod, if known. */
    public Optional<List<String>> candidates(String uid) {
        return pending(uid).map(pod -> pod.kind().nodes().names()).filter(names -> !names.isEmpty());
    }

    /** One Pending pod of each kind. */
    public Collection<PendingPod> kinds() {
        var kinds = new IdentityHashMap<PodKind, PendingPod>();
        for (Entry entry : entries.asMap().values()) {
            if (entry.pending()) {
                kinds.putIfAbsent(entry.pod().kind(), entry.pod());
            }
        }
        return kinds.values();
    }
}
