package io.aliquot.scheduler.ledger;

import io.aliquot.api.Gpu;
import io.aliquot.scheduler.ledger.Claim.State;
import io.aliquot.scheduler.ledger.Commitment.AlreadyBound;
import io.aliquot.scheduler.ledger.Commitment.Conflict;
import io.aliquot.scheduler.ledger.Commitment.Granted;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.placement.Amount;
import io.aliquot.scheduler.placement.Choice;
import io.aliquot.scheduler.placement.Choice.Chosen;
import io.aliquot.scheduler.placement.Choice.Refused;
import io.aliquot.scheduler.placement.PodAsk;
import io.aliquot.scheduler.placement.Scores;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;
import java.util.function.Predicate;

/*
 * Each node is an account with a lock of its own, and a pod has a claim on at most one node. A claim's life:
 *
 *      expect          commit          hold
 *   -  ------> EXPECTED ----> ASSUMED ------> HELD
 *         (gone by itself)   release |          | forget
 *                                    v          v
 *                                  (gone)     (gone)
 *
 * The cluster's word (hold, forget) goes from any state. Only it, a definite refusal of the Binding, or a reading of
 * the pod ends an ASSUMED claim: what was sent may have been done.
 *
 * whereIs tells a pod's node, and its compute() serializes all that happens to one pod. Locks are taken in the order
 * pod, node; two nodes are never locked at once.
 */
/**
 * Who holds how much of which GPU. Never grants more than a GPU has: for every GPU the sum of memory, cores and vGPUs
 * over all claims stays within its capacity, and a whole card is nobody else's. Thread-safe.
 */
public final class Ledger {
    /** How long a place is kept free between Filter and Bind; kube-scheduler usually needs milliseconds. */
    public static final Duration EXPECTED_FOR = Duration.ofSeconds(5);

    private final LongSupplier nanoTime;
    private final LedgerListener listener;
    private final Map<String, NodeAccount> nodes = new ConcurrentHashMap<>();
    private final Map<String, String> whereIs = new ConcurrentHashMap<>();

    public Ledger(LongSupplier nanoTime, LedgerListener listener) {
        this.nanoTime = nanoTime;
        this.listener = listener;
    }

    // What the cluster tells.

    /** A node is new or may have changed. */
    public void putNode(String name, NodeFacts facts) {
        NodeAccount account = account(name);
        boolean changed;
        synchronized (account) {
            changed = !account.facts().equals(facts);
            account.setFacts(facts);
        }
        if (changed && facts instanceof Sharing) {
            listener.roomFreed(name);
        }
    }

    /**
     * A node's agent answers its kubelet, or doesn't. The kubelet fails a pod that reaches it in the meantime, and shows
     * only at its next report, up to 10 s later, that it has no vGPUs. Until this is first called the agent is taken to
     * answer.
     */
    public void setServed(String name, boolean served) {
        NodeAccount account = account(name);
        boolean back;
        synchronized (account) {
            back = served && !account.served();
            account.setServed(served);
        }
        if (back) {
            listener.roomFreed(name);
        }
    }

    /** A node is gone. What pods hold there is kept until they are gone too. */
    public void removeNode(String name) {
        NodeAccount account = account(name);
        synchronized (account) {
            account.setFacts(NodeAccount.UNKNOWN);
        }
    }

    /** A pod is bound, or is still. Repeating it changes nothing; what it holds may change. */
    public void hold(BoundPod pod) {
        String uid = pod.id().uid();
        var freed = new ArrayList<String>();
        var oversold = new ArrayList<Runnable>();
        whereIs.compute(uid, (key, before) -> {
            if (before != null && !before.equals(pod.node())) {
                take(before, uid, freed);
            }
            NodeAccount account = account(pod.node());
            synchronized (account) {
                Map<String, Amount> earlier =
                        account.claim(uid).map(claim -> claim.perGpu).orElse(Map.of());
                if (!earlier.isEmpty() && !earlier.equals(pod.perGpu())) {
                    freed.add(pod.node());
                }
                Claim claim = Claim.held(pod, nanoTime.getAsLong());
                account.put(claim);
                if (!earlier.equals(pod.perGpu())) {
                    for (String gpu : account.oversold(claim)) {
                        Set<PodId> holders = account.holders(gpu);
                        oversold.add(() -> listener.oversold(pod.node(), gpu, pod.id(), holders));
                    }
                }
            }
            return pod.node();
        });
        freed.forEach(listener::roomFreed);
        oversold.forEach(Runnable::run);
    }

    /**
     * A pod was read as bound, beside the watch that calls {@link #hold} and may have told of its end already. Believed
     * where nothing else is known, and listed by {@link #unsettledSince} until the watch confirms it.
     */
    public void suppose(BoundPod pod) {
        whereIs.compute(pod.id().uid(), (uid, before) -> {
            if (before != null) {
                if (state(before, uid).filter(state -> state != State.EXPECTED).isPresent()) {
                    return before;
                }
                take(before, uid, new ArrayList<>());
            }
            NodeAccount account = account(pod.node());
            synchronized (account) {
                account.put(Claim.supposed(pod, nanoTime.getAsLong()));
            }
            return pod.node();
        });
    }

    /** A pod has ended or is gone. */
    public void forget(String uid) {
        end(uid, claim -> true);
    }

    // What the verbs do.

    /** What a node would say to this pod now. */
    public Offer ask(String node, String uid, PodAsk ask) {
        NodeAccount account = nodes.get(node);
        if (account == null) {
            return new Offer.Refuses(NodeAccount.UNKNOWN.reason(), true);
        }
        synchronized (account) {
            Choice choice = account.choose(uid, ask);
            return choice instanceof Chosen chosen
                    ? new Offer.Fits(Scores.fullness(chosen.fullness(), account.hostFullness()))
                    : new Offer.Refuses(((Refused) choice).reason(), ((Refused) choice).hopeless());
        }
    }

    /** Keeps room on the node where the pod will probably go, for {@link #EXPECTED_FOR}, if it fits there. */
    public void expect(PodId pod, String node, PodAsk ask) {
        var freed = new ArrayList<String>();
        whereIs.compute(pod.uid(), (uid, before) -> {
            if (before != null) {
                if (state(before, uid).filter(state -> state != State.EXPECTED).isPresent()) {
                    return before;
                }
                take(before, uid, before.equals(node) ? new ArrayList<>() : freed);
            }
            NodeAccount account = account(node);
            synchronized (account) {
                if (account.choose(uid, ask) instanceof Chosen chosen) {
                    account.put(Claim.expected(pod, chosen.perGpu(), nanoTime.getAsLong()));
                    return node;
                }
                return null;
            }
        });
        freed.forEach(listener::roomFreed);
    }

    /** The node of the pod's claim, whatever its state. */
    public Optional<String> place(String uid) {
        return Optional.ofNullable(whereIs.get(uid));
    }

    /** Where a Binding of this pod was sent whose effect the cluster has not told yet. */
    public Optional<String> unsettled(String uid) {
        return Optional.ofNullable(whereIs.get(uid))
                .filter(node -> state(node, uid).equals(Optional.of(State.ASSUMED)));
    }

    /**
     * Gives the pod the best GPUs of this node, for good. Asked again before the outcome is known, it grants the same
     * again: a Binding may be sent twice, but never for two places.
     */
    public Commitment commit(PodId pod, String node, PodAsk ask) {
        var freed = new ArrayList<String>();
        var answer = new Commitment[1];
        whereIs.compute(pod.uid(), (uid, before) -> {
            if (before != null
                    && state(before, uid)
                            .filter(state -> state != State.EXPECTED)
                            .isPresent()) {
                answer[0] = again(uid, before, node);
                return before;
            }
            NodeAccount account = account(node);
            synchronized (account) {
                Choice choice = account.choose(uid, ask);
                if (!(choice instanceof Chosen chosen && account.facts() instanceof Sharing sharing)) {
                    answer[0] = new Conflict(((Refused) choice).reason());
                    return before;
                }
                var granted =
                        new Granted(chosen.containers(), sharing.inventory().visibleDevices());
                account.put(Claim.assumed(pod, chosen.perGpu(), nanoTime.getAsLong(), granted));
                answer[0] = granted;
            }
            if (before != null && !before.equals(node)) {
                take(before, uid, freed);
            }
            return node;
        });
        freed.forEach(listener::roomFreed);
        return answer[0];
    }

    /** For a pod that is bound, or may be. */
    private Commitment again(String uid, String present, String wanted) {
        NodeAccount account = account(present);
        synchronized (account) {
            Claim claim = account.claim(uid).orElseThrow();
            Optional<Granted> granted = claim.grant();
            if (granted.isEmpty()) {
                return new AlreadyBound(present);
            }
            if (!present.equals(wanted)) {
                return new Conflict("a bind to node " + present + " was sent and its outcome is not known yet");
            }
            // As old as the latest Binding that may still be carried out.
            account.put(Claim.assumed(claim.pod, claim.perGpu, nanoTime.getAsLong(), granted.get()));
            return granted.get();
        }
    }

    /** The Binding was refused for certain, or the pod was read and is not bound. Leaves what the cluster told alone. */
    public void release(String uid) {
        end(uid, claim -> claim.state != State.HELD);
    }

    // What has to be done from time to time.

    /** As {@link #release}, but only if the latest Binding of this pod was sent that long ago. */
    public void giveUp(String uid, Duration age) {
        long now = nanoTime.getAsLong();
        end(uid, claim -> claim.state == State.ASSUMED && now - claim.since >= age.toNanos());
    }

    /** Ends expectations that did not come true. */
    public void expire() {
        long now = nanoTime.getAsLong();
        for (PodId pod : claims(claim -> expired(claim, now))) {
            end(pod.uid(), claim -> expired(claim, now));
        }
    }

    private static boolean expired(Claim claim, long now) {
        return claim.state == State.EXPECTED && now - claim.since > EXPECTED_FOR.toNanos();
    }

    /** Pods whose Binding was sent that long ago, and the cluster has not told of its effect. */
    public List<PodId> unsettledSince(Duration age) {
        long now = nanoTime.getAsLong();
        return claims(claim -> claim.state == State.ASSUMED && now - claim.since >= age.toNanos());
    }

    // What others want to know.

    /** The most GPUs that a node has. */
    public int mostGpus() {
        int most = 0;
        for (NodeAccount account : nodes.values()) {
            synchronized (account) {
                if (account.facts() instanceof Sharing sharing) {
                    most = Math.max(most, sharing.inventory().gpus().size());
                }
            }
        }
        return most;
    }

    /** Every GPU of every node and what is taken of it, each node at one instant. */
    public List<GpuReport> report() {
        var reports = new ArrayList<GpuReport>();
        nodes.forEach((name, account) -> {
            synchronized (account) {
                if (account.facts() instanceof Sharing sharing) {
                    for (Gpu gpu : sharing.inventory().gpus()) {
                        reports.add(new GpuReport(name, gpu, sharing.inventory().slots(), account.taken(gpu.uuid())));
                    }
                }
            }
        });
        return reports;
    }

    /** Claims that the cluster has not confirmed: expected and assumed ones. */
    public int reservations() {
        return claims(claim -> claim.state != State.HELD).size();
    }

    private List<PodId> claims(Predicate<Claim> which) {
        var pods = new ArrayList<PodId>();
        for (NodeAccount account : nodes.values()) {
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

    private void end(String uid, Predicate<Claim> which) {
        var freed = new ArrayList<String>();
        whereIs.computeIfPresent(uid, (key, node) -> {
            NodeAccount account = account(node);
            synchronized (account) {
                if (account.claim(uid).filter(which).isEmpty()) {
                    return node;
                }
            }
            take(node, uid, freed);
            return null;
        });
        freed.forEach(listener::roomFreed);
    }

    private void take(String node, String uid, List<String> freed) {
        NodeAccount account = account(node);
        synchronized (account) {
            if (account.remove(uid).filter(claim -> !claim.perGpu.isEmpty()).isPresent()) {
                freed.add(node);
            }
        }
    }

    private Optional<State> state(String node, String uid) {
        NodeAccount account = account(node);
        synchronized (account) {
            return account.claim(uid).map(claim -> claim.state);
        }
    }

    private NodeAccount account(String node) {
        return nodes.computeIfAbsent(node, name -> new NodeAccount());
    }
}
