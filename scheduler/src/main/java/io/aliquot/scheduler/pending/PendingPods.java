package io.aliquot.scheduler.pending;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import com.github.benmanes.caffeine.cache.Interner;
import io.aliquot.scheduler.apiserver.Cluster.PodState.Unbound;
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

/**
 * What pods that are being placed want, and which of them wait for room. kube-scheduler sends a pod with Filter only,
 * so Bind asks here. Bounded: a forgotten pod is read again at Bind, and one that waits is retried by kube-scheduler
 * itself every five minutes. Beside them those that kube-scheduler says it has no node for: where its own filters leave
 * none, as where every node's totals are short, it doesn't send them. Thread-safe.
 */
public final class PendingPods {
    private static final int MOST = 20_000;

    /**
     * What a pod wants, and where. Thousands of pods of one kind share one object.
     *
     * @param nodes that kube-scheduler asked about: the pod may go there, were it not for us
     */
    public record Wish(PodGpuRequest ask, PreemptionRank rank, NodeSet nodes) {
        /** The nodes by name; these where it may go anywhere. */
        public Collection<String> nodesOr(Supplier<? extends Collection<String>> all) {
            Collection<String> named = nodes.names();
            return named.isEmpty() ? all.get() : named;
        }
    }

    /**
     * A pod that waits for room.
     *
     * @param lookedAt when, of the clock that this was given
     */
    public record Waiting(PodId pod, Wish wish, long lookedAt) {}

    /** {@code version}: of the pod that wants this. */
    private record Entry(Waiting pod, long version, boolean waits) {}

    private final LongSupplier nanoTime;
    private final NodeSets nodeSets = new NodeSets();
    private final Interner<Wish> wishes = Interner.newWeakInterner();
    private final Cache<String, Entry> entries = Caffeine.newBuilder()
            .maximumSize(MOST)
            .expireAfterWrite(Duration.ofMinutes(15))
            // Less work than to wake another thread for it, three times a pod.
            .executor(Runnable::run)
            .build();

    /**
     * By uid, for as long as kube-scheduler may still be asking about them: it hears of a pod's end a moment after us, or
     * has asked a moment before.
     */
    private final Cache<String, Boolean> forgotten = Caffeine.newBuilder()
            .maximumSize(MOST)
            .expireAfterWrite(Duration.ofMinutes(1))
            .executor(Runnable::run)
            .build();

    /** By kube-scheduler's word, by uid. */
    private final Map<String, Waiting> refused = new ConcurrentHashMap<>();

    public PendingPods(LongSupplier nanoTime) {
        this.nanoTime = nanoTime;
    }

    /** A pod that is looked at. Until it is told otherwise it waits, for room anywhere. */
    public void observe(UnboundPod pod) {
        put(pod.id(), pod.version(), new Wish(pod.request(), pod.rank(), nodeSets.everywhere()), true);
    }

    /** None of these nodes, the only ones where kube-scheduler would have it, holds the pod now. */
    public void waits(UnboundPod pod, Collection<String> nodes) {
        put(pod.id(), pod.version(), new Wish(pod.request(), pod.rank(), nodeSets.of(nodes)), true);
    }

    /** The node that it was promised doesn't hold it any more. */
    public void waits(PodId pod, Unbound known) {
        Entry before = entries.getIfPresent(pod.uid());
        PreemptionRank rank =
                before == null ? PreemptionRank.LOWEST : before.pod().wish().rank();
        put(pod, known.at(), new Wish(known.ask(), rank, nodeSets.everywhere()), true);
    }

    public void fits(UnboundPod pod) {
        fits(pod.id(), pod.state(), pod.rank());
    }

    public void fits(PodId pod, Unbound known, PreemptionRank rank) {
        put(pod, known.at(), new Wish(known.ask(), rank, nodeSets.everywhere()), false);
    }

    /** Others are made to leave for a pod that may never have been looked at; what is known of it stays. */
    public void holdsCapacity(UnboundPod pod) {
        Wish wish = new Wish(pod.request(), pod.rank(), nodeSets.everywhere());
        entries.asMap().putIfAbsent(pod.id().uid(), entry(pod.id(), pod.version(), wish, false));
    }

    /** kube-scheduler has no node for the pod, and has perhaps not asked us; where it may go it doesn't say. */
    public void refused(PodId pod, PodGpuRequest ask) {
        Wish wish = wishes.intern(new Wish(ask, PreemptionRank.LOWEST, nodeSets.everywhere()));
        refused.put(pod.uid(), new Waiting(pod, wish, nanoTime.getAsLong()));
    }

    private void put(PodId pod, long version, Wish wish, boolean waits) {
        entries.put(pod.uid(), entry(pod, version, wish, waits));
        if (forgotten.getIfPresent(pod.uid()) != null) {
            entries.invalidate(pod.uid());
        }
    }

    private Entry entry(PodId pod, long version, Wish wish, boolean waits) {
        return new Entry(new Waiting(pod, wishes.intern(wish), nanoTime.getAsLong()), version, waits);
    }

    /** What it wanted when it was looked at last. */
    public Optional<Unbound> known(String uid) {
        return Optional.ofNullable(entries.getIfPresent(uid))
                .map(entry -> new Unbound(entry.version(), entry.pod().wish().ask()));
    }

    public Optional<PodGpuRequest> request(String uid) {
        return known(uid).map(Unbound::ask);
    }

    /** The pod has a node, has ended or is gone. */
    public void forget(String uid) {
        forgotten.put(uid, true); // first: who puts it in looks here afterwards
        entries.invalidate(uid);
        refused.remove(uid);
    }

    public List<Waiting> waiting() {
        return entries.asMap().values().stream()
                .filter(Entry::waits)
                .map(Entry::pod)
                .toList();
    }

    /** Those that wait by our word or by kube-scheduler's; by ours where there are both. */
    public Collection<Waiting> allWaiting() {
        var all = new HashMap<>(refused);
        waiting().forEach(pod -> all.put(pod.pod().uid(), pod));
        return all.values();
    }

    public Optional<Waiting> waiting(String uid) {
        return Optional.ofNullable(entries.getIfPresent(uid))
                .filter(Entry::waits)
                .map(Entry::pod);
    }

    /** Where a pod may go, were it not for us: the nodes that kube-scheduler asked about, if that is known. */
    public Optional<List<String>> candidates(String uid) {
        return waiting(uid).map(pod -> pod.wish().nodes().names()).filter(names -> !names.isEmpty());
    }

    /** What waiting pods wish, each different wish once, with one of the pods that have it. */
    public Collection<Waiting> kinds() {
        var kinds = new IdentityHashMap<Wish, Waiting>();
        for (Entry entry : entries.asMap().values()) {
            if (entry.waits()) {
                kinds.putIfAbsent(entry.pod().wish(), entry.pod());
            }
        }
        return kinds.values();
    }
}
