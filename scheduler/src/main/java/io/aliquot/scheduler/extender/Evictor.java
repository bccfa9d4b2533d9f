package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.extender.Cluster.EvictOutcome;
import io.aliquot.scheduler.extender.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.extender.PendingPods.Waiting;
import io.aliquot.scheduler.extender.PendingPods.Wish;
import io.aliquot.scheduler.ledger.Feasibility;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.preemption.EvictionPlan;
import io.aliquot.scheduler.preemption.Victim;
import io.aliquot.scheduler.preemption.VictimSearch;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/*
 * kube-scheduler evicts for a shortage that it sees, which is one of a node's totals. Where the totals suffice and no
 * single GPU does, the node passes its filters and fails at ours, and nobody but us can help the pod.
 *
 * Whom: those of lower priority whose leaving costs least, on one of the nodes that kube-scheduler asked about a moment
 * ago, so that its taints, affinities and CPU are still as they were. Never against a disruption budget: the Eviction
 * API wouldn't have it. Room that others are leaving anyway is taken first and costs nobody anything; so whoever takes
 * over from a scheduler that died after an eviction evicts nobody again. It is kept for the pod (KeptRooms) before
 * anybody is evicted.
 */
/** Makes room for waiting pods of higher priority, where the shortage is one of single GPUs. */
final class Evictor {
    /** For kube-scheduler to preempt by itself, right after Filter. */
    static final Duration ITS_TURN = Duration.ofMillis(500);
    /**
     * How long a question of kube-scheduler's is believed to name the nodes where a pod may go. After that it is made to
     * ask anew, which its backoff may put off for longer than this.
     */
    static final Duration FRESH = Duration.ofSeconds(10);
    /** How long one whom a disruption budget protects is left alone, and at least a pod that nothing helps, too. */
    static final Duration LEFT_ALONE = Duration.ofSeconds(10);

    private static final Logger LOG = LoggerFactory.getLogger(Evictor.class);
    /** Kinds of pods a second, since each looks at all nodes. */
    private static final int MOST_KINDS = 8;

    private static final int MOST_EVICTIONS = 20;
    private static final Duration LEAST_IMPORTANT_FOR = Duration.ofSeconds(2);

    private final Ledger ledger;
    private final PendingPods pending;
    private final Cluster cluster;
    private final Budgets budgets;
    private final PreemptionReservations kept;
    private final Waker waker;
    private final MeterRegistry metrics;
    private final LongSupplier nanoTime;
    private Duration helplessFor = LEFT_ALONE;
    private long looked;
    private int leastImportant = Integer.MAX_VALUE;
    /** Until when, by uid. */
    private final Map<String, Long> protectedPods = new HashMap<>();
    /** Until when. */
    private final Map<Wish, Long> helpless = new HashMap<>();

    Evictor(
            Ledger ledger,
            PendingPods pending,
            Cluster cluster,
            Budgets budgets,
            PreemptionReservations kept,
            Waker waker,
            MeterRegistry metrics,
            LongSupplier nanoTime) {
        this.ledger = ledger;
        this.pending = pending;
        this.cluster = cluster;
        this.budgets = budgets;
        this.kept = kept;
        this.waker = waker;
        this.metrics = metrics;
        this.nanoTime = nanoTime;
        this.looked = nanoTime.getAsLong() - LEAST_IMPORTANT_FOR.toNanos();
    }

    /** To be called about once a second. */
    void evict() {
        if (!(cluster.leadership() instanceof Leads)) {
            return;
        }
        kept.refresh();
        long now = nanoTime.getAsLong();
        if (now - looked >= LEAST_IMPORTANT_FOR.toNanos()) {
            looked = now;
            leastImportant = leastImportant();
        }
        protectedPods.values().removeIf(until -> until - now <= 0);
        helpless.values().removeIf(until -> until - now <= 0);
        List<Waiting> waiting = pending.waiting().stream()
                .filter(one -> one.wish().rank().preempts()
                        && one.wish().rank().priority() > leastImportant
                        && now - one.lookedAt() >= ITS_TURN.toNanos()
                        && !kept.holds(one.pod().uid()))
                .sorted(Comparator.<Waiting>comparingInt(
                                one -> -one.wish().rank().priority())
                        .thenComparingLong(Waiting::lookedAt))
                .toList();
        // At least as long as it takes to look at the others.
        helplessFor = LEFT_ALONE.plusSeconds(
                waiting.stream().map(Waiting::wish).distinct().count() / MOST_KINDS);
        int looks = 0;
        int evictions = 0;
        for (Waiting one : waiting) {
            boolean due = fresh(one) || !waker.told(one);
            if (due && !helpless.containsKey(one.wish())) {
                if (looks++ == MOST_KINDS || evictions >= MOST_EVICTIONS) {
                    return;
                }
                evictions += makeRoom(one);
            }
        }
    }

    /** The lowest priority of all who hold a part of a GPU: whoever waits with no more need not be looked at. */
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

    private boolean fresh(Waiting one) {
        return nanoTime.getAsLong() - one.lookedAt() <= FRESH.toNanos();
    }

    private record OnNode(String node, EvictionPlan plan) {}

    /** Returns how many were evicted. */
    private int makeRoom(Waiting one) {
        if (!stillWaits(one)) {
            return 0;
        }
        Optional<OnNode> cheapest = cheapest(one);
        if (cheapest.isEmpty()) {
            helpless.put(one.wish(), nanoTime.getAsLong() + helplessFor.toNanos());
            return 0;
        }
        String node = cheapest.get().node();
        List<Victim> victims = cheapest.get().plan().victims();
        if (!victims.isEmpty() && !fresh(one)) {
            waker.wake(node, one); // and when kube-scheduler has asked again
            return 0;
        }
        if (ledger.feasibility(node, one.pod().uid(), one.wish().ask()) instanceof Feasibility.Fits) {
            waker.wake(node, one);
            return 0;
        }
        Set<String> uids = victims.stream().map(victim -> victim.pod().uid()).collect(Collectors.toSet());
        if (!stillWaits(one) || !kept.reserve(one.pod(), one.wish().ask(), node, uids)) {
            return 0; // somebody was faster
        }
        LOG.info("makes room for {} node={} victims={}", one.pod(), node, victims);
        return evict(one, node, victims);
    }

    /** For the same, and on the same nodes: looking for victims takes its time, and so does evicting them for others. */
    private boolean stillWaits(Waiting one) {
        return pending.waiting(one.pod().uid())
                        .filter(now -> now.wish().equals(one.wish()))
                        .isPresent()
                && cluster.version(one.pod()).isPresent();
    }

    private Optional<OnNode> cheapest(Waiting one) {
        Optional<OnNode> best = Optional.empty();
        for (String name : one.wish().nodes().names()) {
            Optional<NodeView> view = ledger.view(name);
            Optional<EvictionPlan> plan = view.flatMap(node -> plan(one, node));
            if (plan.isPresent()
                    && (best.isEmpty()
                            || plan.get().cost().compareTo(best.get().plan().cost()) < 0)) {
                best = Optional.of(new OnNode(name, plan.get()));
                if (plan.get().victims().isEmpty()) {
                    break;
                }
            }
        }
        return best;
    }

    private Optional<EvictionPlan> plan(Waiting one, NodeView node) {
        Wish wish = one.wish();
        Set<String> leaving = kept.leaving(node);
        List<Victim> candidates = node.holdings().stream()
                .filter(holding -> Victim.mayBe(holding, wish.rank().priority())
                        && !protectedPods.containsKey(holding.pod().uid()))
                .map(holding -> Victim.of(holding, budgets))
                .filter(victim -> victim.budgets().stream().allMatch(budget -> budget.allowed() > 0))
                .collect(Collectors.toCollection(ArrayList::new));
        if (candidates.isEmpty() && leaving.isEmpty()) {
            return Optional.empty();
        }
        while (true) {
            Optional<EvictionPlan> plan = VictimSearch.cheapest(
                    candidates,
                    without -> ledger.feasibilityWithout(node.name(), one.pod().uid(), wish.ask(), without)
                            instanceof Feasibility.Fits,
                    leaving,
                    wish.ask().requestsOneVgpu(),
                    Optional.empty());
            if (plan.isEmpty() || plan.get().cost().violations() == 0) {
                return plan;
            }
            // Together they overdraw a budget, which alone none of them does: without the dearest of them.
            candidates.remove(plan.get().victims().stream()
                    .filter(victim -> !victim.budgets().isEmpty())
                    .max(Comparator.comparingInt(Victim::priority)
                            .thenComparing(Victim::since, Comparator.reverseOrder()))
                    .orElseThrow());
        }
    }

    private int evict(Waiting one, String node, List<Victim> victims) {
        if (victims.size() > 1 && !victims.stream().allMatch(victim -> evict(victim, true))) {
            kept.release(one.pod().uid());
            return 0;
        }
        var evicted = new ArrayList<Victim>();
        for (Victim victim : victims) {
            if (!evict(victim, false)) {
                kept.release(one.pod().uid()); // the next look takes into account who is leaving by then
                break;
            }
            evicted.add(victim);
            cluster.note(
                    victim.pod(),
                    "Preempted",
                    "Preempted by pod " + one.pod().namespace() + "/"
                            + one.pod().name() + " of priority "
                            + one.wish().rank().priority() + ", which fits on no GPU of node " + node + " otherwise");
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
        EvictOutcome outcome = cluster.evict(victim.pod(), dryRun);
        if (!dryRun) {
            Counter.builder("aliquot.evictions")
                    .description("Evictions for a pod of higher priority by how they ended")
                    .tag("outcome", label(outcome))
                    .register(metrics)
                    .increment();
        }
        if (outcome instanceof EvictOutcome.Done || outcome instanceof EvictOutcome.Gone) {
            return true;
        }
        LOG.warn("cannot evict {} {}", victim.pod(), outcome);
        protectedPods.put(victim.pod().uid(), nanoTime.getAsLong() + LEFT_ALONE.toNanos());
        return false;
    }

    private static String label(EvictOutcome outcome) {
        return outcome.getClass().getSimpleName().toLowerCase(Locale.ROOT);
    }
}
