package io.aliquot.scheduler.scoring;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.scheduler.ledger.NodeAccountView;
import io.aliquot.scheduler.ledger.NodeObserver;
import io.aliquot.scheduler.placement.CandidateChooser;
import io.aliquot.scheduler.placement.CandidatePlacements;
import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.GpuModels;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.function.Supplier;

/*
 * The scoring policy has to know the free capacity of every node, but scores for some pods only, often for none. So a
 * change of an account is only noted. Before the next scoring refresh() reads the accounts' free capacities and reports
 * them to the policy, in the order of the accounts' numbers, so that equal histories give equal choices.
 *
 * Locks: a thread may hold an account's lock when it takes this one, never the reverse. refresh() holds the lock of reported
 * while it reads a free capacity and reports it, so that no report overtakes a later one.
 *
 * Nodes of one kind are often alike, and so are candidates on them. An evaluation is cached by the free capacity before
 * and after, and with each node's answer, so that a node that has not changed costs no lookup.
 */
/**
 * Keeps a scoring policy informed of all nodes and pods, and caches its evaluations. Thread-safe.
 *
 * @param <P> the policy's evaluation of a candidate
 */
final class ScoringCache<P> implements NodeObserver, CandidateChooser {
    /** The most pods of which is known that they were observed; a pod that is retried counts once. */
    private static final int MOST_PODS = 20_000;
    /** The most cached evaluations, about 350 bytes each. */
    private static final int MOST_EVALUATIONS = CacheSizes.limit(1 << 18, 350);

    final GpuModels models;

    private final ScoringPolicy<P> policy;
    /** Accounts that changed since the last refresh, by their numbers. */
    private final ConcurrentSkipListMap<Integer, NodeAccountView> changed = new ConcurrentSkipListMap<>();
    /** What the policy knows of each account that takes pods, by number. Guarded by itself. */
    private final Map<Integer, FreeCapacity> reported = new HashMap<>();

    private final Cache<String, Boolean> observed =
            Caffeine.newBuilder().maximumSize(MOST_PODS).executor(Runnable::run).build();

    /** The policy's, at the last refresh. */
    private volatile int modelVersion = -1;

    private volatile PriceSnapshot prices = PriceSnapshot.CONSTANT;
    /** Whether the policy knows the pods that were bound before the first observed one. */
    private volatile boolean knowsBoundPods;

    // Guarded by this.

    /** Evaluations by demand, free capacity before and free capacity after. */
    private final Map<DemandVector, Map<FreeCapacity, Map<FreeCapacity, P>>> known = new HashMap<>();

    private int knownCount;
    /** How many candidates the policy has evaluated so far. */
    private long evaluations;

    private final Map<List<P>, ParetoFront> fronts = new HashMap<>();
    /** Buffers: allocated for each changed node they would be garbage for each pod. */
    private final List<P> evaluated = new ArrayList<>();

    private final List<P> undominated = new ArrayList<>();

    /**
     * The candidates on a node that no other one dominates, the Pareto front, until the model version changes. Different
     * nodes often have equal fronts; they share one object, which is scored once for all of them.
     */
    final class ParetoFront {
        final int modelVersion;
        /** The lowest and the highest idle cost of the candidates. */
        private final double minIdleCost;

        private final double maxIdleCost;
        private final List<P> candidates;

        // Of the last scoring, guarded by ScoringCache.this.

        private PriceSnapshot scoredAt = PriceSnapshot.CONSTANT;
        private boolean scored;
        /** The score of the best candidate. */
        private double score = Double.POSITIVE_INFINITY;
        /** The highest price cost of a candidate then, or an upper bound. */
        private double priceCost;

        private ParetoFront(int modelVersion, List<P> candidates) {
            this.modelVersion = modelVersion;
            this.candidates = candidates;
            double low = Double.POSITIVE_INFINITY;
            double high = Double.NEGATIVE_INFINITY;
            for (P candidate : candidates) {
                low = Math.min(low, policy.idleCost(candidate));
                high = Math.max(high, policy.idleCost(candidate));
            }
            this.minIdleCost = low;
            this.maxIdleCost = high;
        }

        /** The score of the best candidate now; NaN if the model version has changed. */
        double score() {
            synchronized (ScoringCache.this) {
                if (modelVersion != ScoringCache.this.modelVersion) {
                    return Double.NaN;
                }
                if (!scored || scoredAt != prices) {
                    computeScore();
                }
                return score;
            }
        }

        private void computeScore() {
            score = policy.score(candidates.get(best(candidates)));
            priceCost = 0;
            for (int i = 0; i < candidates.size(); i++) {
                priceCost = Math.max(priceCost, policy.priceCost(candidates.get(i)));
            }
            scoredAt = prices;
            scored = true;
        }

        /** An upper bound of the score. */
        double upperBound() {
            synchronized (ScoringCache.this) {
                return scoredAt == prices
                        ? score
                        : prices.upperBound(score, scoredAt, priceCost, minIdleCost, maxIdleCost);
            }
        }

        /** The score when it was last computed; infinite if it never was. */
        double lastScore() {
            synchronized (ScoringCache.this) {
                return score;
            }
        }

        /** The terms of that score; empty if the model version has changed. */
        List<ScoreTerm> terms() {
            synchronized (ScoringCache.this) {
                return modelVersion != ScoringCache.this.modelVersion
                        ? List.of()
                        : policy.terms(candidates.get(best(candidates)));
            }
        }
    }

    /** The answer of a node that the pod fits on, with its score. */
    final class Evaluated extends Feasibility.Fits {
        final ParetoFront front;
        /** Added to the front's score for the node. */
        final double tieBreak;
        /** How many candidates the policy evaluated for this answer; the others were cached. */
        final int evaluations;

        private Evaluated(double fullness, ParetoFront front, double tieBreak, int evaluations) {
            super(fullness);
            this.front = front;
            this.tieBreak = tieBreak;
            this.evaluations = evaluations;
        }
    }

    /** A cache for the ledger that numbers these models. */
    ScoringCache(ScoringPolicy<P> policy, GpuModels models) {
        this.policy = policy;
        this.models = models;
    }

    /** Differs whenever nodes have to be evaluated again. */
    int modelVersion() {
        return modelVersion;
    }

    @Override
    public void nodeChanged(NodeAccountView account) {
        changed.put(account.number(), account);
    }

    /** Reports all changes to the policy. The caller must not hold an account's lock. */
    @Override
    public void refresh() {
        synchronized (reported) {
            for (var next = changed.pollFirstEntry(); next != null; next = changed.pollFirstEntry()) {
                report(next.getKey(), next.getValue().freeCapacity());
            }
        }
        synchronized (this) {
            int now = policy.modelVersion();
            if (now != modelVersion) {
                modelVersion = now;
                clear();
            }
            prices = policy.prices();
        }
    }

    /** {@code now}: the node's free capacity; empty if the node takes no pods. */
    private synchronized void report(Integer number, Optional<FreeCapacity> now) {
        Optional<FreeCapacity> before = Optional.ofNullable(reported.remove(number));
        now.ifPresent(free -> reported.put(number, free));
        if (!before.equals(now)) {
            before.ifPresent(policy::nodeRemoved);
            now.ifPresent(policy::nodeAdded);
        }
    }

    /**
     * Reports a pod that is to be placed; before the first one, reports all bound pods.
     *
     * @param bound requests of the bound pods, oldest first
     */
    void observe(String uid, PodGpuRequest request, Supplier<Collection<PodGpuRequest>> bound) {
        if (observed.asMap().putIfAbsent(uid, true) != null) {
            return;
        }
        // Read without this lock, since it takes the accounts' locks.
        Collection<PodGpuRequest> earlier = knowsBoundPods ? List.of() : bound.get();
        synchronized (this) {
            if (!knowsBoundPods) {
                knowsBoundPods = true;
                earlier.forEach(pod -> policy.observe(models.demand(pod)));
            }
            policy.observe(models.demand(request));
        }
    }

    /**
     * Evaluates a node that a pod fits on.
     *
     * @param fullness of the node with the pod
     */
    synchronized Evaluated evaluate(double fullness, CandidatePlacements candidates) {
        long before = evaluations;
        ParetoFront front = front(evaluations(candidates));
        return new Evaluated(fullness, front, policy.tieBreak(candidates.before()), (int) (evaluations - before));
    }

    @Override
    public synchronized int choose(CandidatePlacements candidates) {
        return candidates.gpu(best(evaluations(candidates)));
    }

    /** The evaluation of each candidate; valid until the next call. */
    private List<P> evaluations(CandidatePlacements candidates) {
        if (knownCount >= MOST_EVALUATIONS) {
            clear();
        }
        Map<FreeCapacity, P> byFreeAfter = known.computeIfAbsent(candidates.demand(), any -> new HashMap<>())
                .computeIfAbsent(candidates.before(), any -> new HashMap<>());
        evaluated.clear();
        for (int i = 0; i < candidates.count(); i++) {
            P evaluation = byFreeAfter.get(candidates.after(i));
            if (evaluation == null) {
                FreeCapacity after = candidates.copyOfAfter(i);
                evaluation = policy.evaluate(candidates.demand(), candidates.before(), after);
                byFreeAfter.put(after, evaluation);
                knownCount++;
                evaluations++;
            }
            evaluated.add(evaluation);
        }
        return evaluated;
    }

    /** The candidates that no other one dominates; of equal ones the first. */
    private ParetoFront front(List<P> candidates) {
        undominated.clear();
        for (int i = 0; i < candidates.size(); i++) {
            P candidate = candidates.get(i);
            if (!isDominated(candidate, undominated)) {
                for (int other = undominated.size() - 1; other >= 0; other--) {
                    if (policy.dominates(candidate, undominated.get(other))) {
                        undominated.remove(other);
                    }
                }
                undominated.add(candidate);
            }
        }
        ParetoFront front = fronts.get(undominated);
        if (front == null) {
            List<P> list = List.copyOf(undominated);
            front = new ParetoFront(modelVersion, list);
            fronts.put(list, front);
        }
        return front;
    }

    private boolean isDominated(P candidate, List<P> by) {
        for (int i = 0; i < by.size(); i++) {
            if (policy.dominates(by.get(i), candidate)) {
                return true;
            }
        }
        return false;
    }

    private void clear() {
        known.clear();
        knownCount = 0;
        fronts.clear();
    }

    private int best(List<P> list) {
        int best = 0;
        double most = list.size() > 1 ? policy.score(list.get(0)) : 0;
        for (int i = 1; i < list.size(); i++) {
            P candidate = list.get(i);
            if (policy.upperBound(candidate) > most) {
                double score = policy.score(candidate);
                if (score > most) {
                    best = i;
                    most = score;
                }
            }
        }
        return best;
    }
}
