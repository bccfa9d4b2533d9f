package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.EvictOutcome;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.pending.PendingPods.PendingPod;
import io.aliquot.scheduler.pending.PendingPods.PodKind;
import io.aliquot.scheduler.pending.Waker;
import io.aliquot.scheduler.placement.Feasibility;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.stereotype.Component;

/*
 * Why this process evicts: kube-scheduler preempts for a shortage of a node's totals only. If the totals suffice and no
 * single GPU does, the node passes its filters and fails at filter here, and kube-scheduler preempts nothing.
 *
 * The victims are the pods of lower priority with the lowest EvictionCost, on one of the nodes that kube-scheduler sent
 * a moment ago, so that taints, affinities and CPU still match. Disruption budgets are respected, since the Eviction
 * API enforces them. Capacity that terminating pods free is used first; so the next leader, after a leader that died
 * between an eviction and the binding, evicts no further pod. The capacity is reserved (PreemptionReservations) before
 * the first eviction.
 */
/** Evicts pods of lower priority for pending pods that no single GPU has enough free capacity for. */
@Component
public final class Evictor {
    /** Time for kube-scheduler to preempt by itself, right after filter. */
    static final Duration KUBE_SCHEDULER_TURN = Duration.ofMillis(500);
    /**
     * How long the nodes that kube-scheduler sent count as current. After that, kube-scheduler is made to ask again, which
     * its backoff may delay for longer than this.
     */
    static final Duration FRESH = Duration.ofSeconds(10);
    /** Shortest pause for a pod that no eviction helps. */
    private static final Duration SHORTEST_HELPLESS = Duration.ofSeconds(10);

    private static final Logger LOG = LoggerFactory.getLogger(Evictor.class);
    /** Kinds of pods per run; each costs a search on all its nodes. */
    private static final int MAX_KINDS = 8;

    private static final int MAX_EVICTIONS = 20;
    private static final Duration LEAST_IMPORTANT_FOR = Duration.ofSeconds(2);

    private final Ledger ledger;
    private final PendingPods pending;
    private final Cluster cluster;
    private final Budgets budgets;
    private final PreemptionReservations reservations;
    private final Waker waker;
    private final Evictions evictions;
    private final LongSupplier nanoTime;
    private Duration helplessFor = SHORTEST_HELPLESS;
    private long leastImportantSince;
    private int leastImportant = Integer.MAX_VALUE;
    /** Kinds of pods that no eviction helps, and when to search again. */
    private final Map<PodKind, Long> helpless = new HashMap<>();

    Evictor(
            Ledger ledger,
            PendingPods pending,
            Cluster cluster,
            Budgets budgets,
            PreemptionReservations reservations,
            Waker waker,
            Evictions evictions,
            LongSupplier nanoTime) {
        this.ledger = ledger;
        this.pending = pending;
        this.cluster = cluster;
        this.budgets = budgets;
        this.reservations = reservations;
        this.waker = waker;
        this.evictions = evictions;
        this.nanoTime = nanoTime;
        this.leastImportantSince = nanoTime.getAsLong() - LEAST_IMPORTANT_FOR.toNanos();
    }

    /** One run, about once a second. */
    public void evict() {
        if (!(cluster.leadership() instanceof Leads)) {
            return;
        }
        reservations.refresh();
        long now = nanoTime.getAsLong();
        if (now - leastImportantSince >= LEAST_IMPORTANT_FOR.toNanos()) {
            leastImportantSince = now;
            leastImportant = leastImportant();
        }
        helpless.values().removeIf(until -> until - now <= 0);
        List<PendingPod> waiting = pending.pending().stream()
                .filter(one -> one.kind().rank().preempts()
                        && one.kind().overQuotaIn().isEmpty()
                        && one.kind().rank().priority() > leastImportant
                        && now - one.lastFiltered() >= KUBE_SCHEDULER_TURN.toNanos()
                        && !reservations.holds(one.pod().uid()))
                .sorted(Comparator.<PendingPod>comparingInt(
                                one -> -one.kind().rank().priority())
                        .thenComparingLong(one -> -(now - one.lastFiltered())))
                .toList();
        // Long enough for a search for each other kind.
        helplessFor = SHORTEST_HELPLESS.plusSeconds(
                waiting.stream().map(PendingPod::kind).distinct().count() / MAX_KINDS);
        int looks = 0;
        int evicted = 0;
        for (PendingPod one : waiting) {
            boolean due = fresh(one) || !waker.wokenSince(one);
            if (due && !helpless.containsKey(one.kind())) {
                if (looks++ == MAX_KINDS || evicted >= MAX_EVICTIONS) {
                    return;
                }
                evicted += preempt(one);
            }
        }
    }

    /** The lowest priority of all pods that hold a GPU: a pending pod of this or a lower priority has no victims. */
    private int leastImportant() {
        return ledger.nodeNames().stream()
                .flatMap(node -> ledger.view(node).stream())
                .flatMap(node -> node.holdings().stream())
                .filter(holding -> holding.state() == Holding.State.HELD
                        && !holding.perGpu().isEmpty())
                .mapToInt(Holding::priority)
                .min()
                .orElse(Integer.MAX_VALUE);
    }

    private boolean fresh(PendingPod one) {
        return nanoTime.getAsLong() - one.lastFiltered() <= FRESH.toNanos();
    }

    private record OnNode(String node, EvictionPlan plan) {}

    /** Returns the number of evicted pods. */
    private int preempt(PendingPod one) {
        if (!stillWaits(one)
                || ledger.overQuota(one.pod(), one.kind().request()).isPresent()) {
            return 0;
        }
        Optional<OnNode> cheapest = cheapest(one);
        if (cheapest.isEmpty()) {
            helpless.put(one.kind(), nanoTime.getAsLong() + helplessFor.toNanos());
            return 0;
        }
        String node = cheapest.get().node();
        List<Victim> victims = cheapest.get().plan().victims();
        if (!victims.isEmpty() && !fresh(one)) {
            waker.wake(node, one); // the eviction follows when kube-scheduler has asked again
            return 0;
        }
        if (ledger.feasibility(node, one.pod().uid(), one.kind().request()) instanceof Feasibility.Fits) {
            waker.wake(node, one);
            return 0;
        }
        if (!stillWaits(one) || !reservations.reserve(one.pod(), one.kind().request(), node, Victim.uids(victims))) {
            return 0; // the capacity was taken in the meantime, or the GPUs are more than the pod's quotas allow
        }
        LOG.info("preempting for {} node={} victims={}", one.pod(), node, victims);
        return evict(one, node, victims);
    }

    /** Whether the pod is still pending with the same request and nodes: the search and earlier evictions take time. */
    private boolean stillWaits(PendingPod one) {
        return pending.pending(one.pod().uid())
                        .filter(now -> now.kind().equals(one.kind()))
                        .isPresent()
                && cluster.version(one.pod()).isPresent();
    }

    private Optional<OnNode> cheapest(PendingPod one) {
        Optional<OnNode> best = Optional.empty();
        for (String name : one.kind().nodes().names()) {
            Optional<NodeView> view = ledger.view(name);
            EvictionCost below = best.map(found -> found.plan().cost()).orElse(EvictionCost.MAX);
            Optional<EvictionPlan> plan = view.flatMap(node -> plan(one, node, below));
            if (plan.isPresent()) {
                best = Optional.of(new OnNode(name, plan.get()));
                if (plan.get().victims().isEmpty()) {
                    break;
                }
            }
        }
        return best;
    }

    private Optional<EvictionPlan> plan(PendingPod one, NodeView node, EvictionCost below) {
        PodKind kind = one.kind();
        Set<String> gone = reservations.leaving(node, one.pod().uid());
        List<Victim> candidates = Victim.candidates(node, kind.rank().priority(), budgets)
                .filter(victim -> !gone.contains(victim.pod().uid())
                        && !evictions.isBlocked(victim.pod().uid())
                        && victim.budgets().stream().allMatch(budget -> budget.allowed() > 0))
                .toList();
        if (!node.unavailableReason().isEmpty()
                || (candidates.isEmpty() && gone.isEmpty())
                || ledger.runtimeRefusal(node.name(), kind.request()).isPresent()) {
            return Optional.empty();
        }
        gone.add(one.pod().uid());
        return VictimSearch.cheapestWithinBudgets(kind.request(), node.gpusWithout(gone), candidates, below);
    }

    private int evict(PendingPod one, String node, List<Victim> victims) {
        if (victims.size() > 1 && !victims.stream().allMatch(victim -> evict(victim, true))) {
            reservations.release(one.pod().uid());
            return 0;
        }
        var evicted = new ArrayList<Victim>();
        for (Victim victim : victims) {
            if (!evict(victim, false)) {
                reservations.release(one.pod().uid()); // the next run counts the pods that terminate by then
                break;
            }
            evicted.add(victim);
            cluster.note(
                    victim.pod(),
                    "Preempted",
                    "Preempted by pod " + one.pod().namespace() + "/"
                            + one.pod().name() + " of priority "
                            + one.kind().rank().priority() + ", which fits on no GPU of node " + node + " otherwise");
        }
        if (!evicted.isEmpty()) {
            cluster.note(
                    one.pod(),
                    "Preempting",
                    "on node " + node + " a GPU is made free by evicting "
                            + evicted.stream()
                                    .map(victim -> victim.pod().namespace() + "/"
                                            + victim.pod().name())
                                    .collect(Collectors.joining(", ")));
        }
        return evicted.size();
    }

    private boolean evict(Victim victim, boolean dryRun) {
        EvictOutcome outcome = dryRun ? evictions.rehearse(victim.pod()) : evict(victim.pod());
        if (!outcome.succeeded()) {
            LOG.warn("cannot evict {} {}", victim.pod(), outcome);
        }
        return outcome.succeeded();
    }

    private EvictOutcome evict(PodId pod) {
        Duration longest = reservations.wait(pod.namespace());
        boolean takesTooLong = ledger.bound(pod.uid())
                .filter(bound -> bound.grace().compareTo(longest) > 0)
                .isPresent();
        return takesTooLong
                ? evictions.evict(pod, longest, Evictions.Cause.PREEMPTION)
                : evictions.evict(pod, Evictions.Cause.PREEMPTION);
    }
}
