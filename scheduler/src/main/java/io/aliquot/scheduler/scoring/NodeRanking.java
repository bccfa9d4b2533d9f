package io.aliquot.scheduler.scoring;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.scheduler.ledger.ChangeCounter;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeAccountView;
import io.aliquot.scheduler.placement.CandidatePlacements;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.PlacementPolicy;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.BiConsumer;
import java.util.function.ObjIntConsumer;

/*
 * Pods of one template are of one kind: a node results all of them alike until something changes there. Between one pod
 * and the next few nodes change, however many nodes and running pods there are. Therefore the ledger counts changes, and
 * the cache keeps each node's last answer to each kind together with the node's count at that time. A node that has not
 * changed costs one comparison, without a look at its account and without an allocation; a node that has changed costs
 * its lock and one run of the GPU selector. For 5,000 nodes that is 0.1 ms instead of about 3.
 *
 * A cached answer is valid at the instant at which the count is read: a node counts a change before it releases its lock,
 * and an answer and its count are read under that lock. No two nodes are ever at the same count, so a node that gets the
 * number of a closed one is not mistaken for it: numbers are looked up with the kind's lock held, and a number is given
 * again only after the index has forgotten its former node.
 *
 * Evaluating a node is far more expensive than asking whether a pod fits, and at times all nodes need it: when the scoring
 * policy has a new model, and for the first pod of a kind. One request evaluates at most EVALUATIONS: first the nodes with
 * the highest former scores, or the fullest where there is none. Nodes that are not evaluated come last, and the next
 * requests of the kind continue with them.
 *
 * The pod's own claim is disregarded, so the cached answer of the node that has it does not apply: that node is asked
 * directly.
 *
 * Locks: first the kind's, then an account's or the index's.
 */
/**
 * The nodes that fit one pod, and which of them is best, for one request: it knows the node of the pod's claim. The pod's
 * {@link PlacementPolicy} decides which node is better.
 */
public final class NodeRanking {
    /** The most cached answers, with scores about 390 bytes each: with more nodes, fewer kinds are cached. */
    private static final int ANSWERS = CacheSizes.limit(1 << 19, 390);

    /**
     * The most evaluations of one request: one for each node, and one for each of its candidates that the scoring cache
     * does not have, about 20 to 50 microseconds on a node of 8 GPUs.
     */
    static final int EVALUATIONS = 512;
    /** The part of it that is spent in the order of the nodes, before they are sorted: few nodes change between pods. */
    private static final int UNSORTED = 64;
    /** Less than the score of any evaluated node. */
    private static final double NOT_EVALUATED = -1e12;

    private static final String NO_POD = "";

    private static final Answer UNKNOWN = new Answer(NodeIndex.UNKNOWN, 0, Ledger.UNKNOWN_NODE);

    /** What a node answered at a count of changes. */
    private record Answer(int number, long changes, Feasibility feasibility) {}

    /** The cached answers to all kinds of pods. Thread-safe. */
    static final class Kinds {
        private record Kind(PodGpuRequest request, boolean scored) {}

        final ChangeCounter changes;
        final NodeIndex index;

        /** The model version of the scores among the results. */
        private volatile int modelVersion;
        /** The number of nodes that the size of the cache is computed for. */
        private volatile int sizedFor = -1;

        private final Cache<Kind, CachedResults> results =
                Caffeine.newBuilder().maximumSize(1).executor(Runnable::run).build();

        Kinds(ChangeCounter changes, NodeIndex index) {
            this.changes = changes;
            this.index = index;
        }

        /** CPU and memory make a difference to the scoring policy only. */
        private CachedResults of(PodGpuRequest request, ScoringCache<?> scores, boolean scored, int nodes) {
            int now = scores.modelVersion();
            if (modelVersion != now) {
                modelVersion = now;
                // Evaluations of another model version are large, and kinds without new pods would keep them.
                results.asMap().forEach((kind, known) -> {
                    if (kind.scored()) {
                        synchronized (known) {
                            known.checkModelVersion(now);
                        }
                    }
                });
            }
            if (sizedFor != nodes) {
                sizedFor = nodes;
                results.policy().eviction().orElseThrow().setMaximum(1 + ANSWERS / Math.max(1, nodes));
            }
            return results.get(
                    new Kind(scored ? request : request.withoutHostRequests(), scored), any -> new CachedResults());
        }
    }

    private final Ledger ledger;
    private final ScoringCache<?> scores;
    private final Kinds kinds;
    private final CachedResults results;
    private final String uid;
    private final PodGpuRequest request;
    private final PlacementPolicy policy;
    private final boolean scored;
    /** Buffer for a node's candidates; empty if the policy does not score them. */
    private final Optional<CandidatePlacements> candidates;
    /** The node of the pod's claim; empty for none. */
    private final String claimedNode;
    /** Evaluations left to this request. Guarded by {@code results}. */
    private int left = EVALUATIONS;

    /** {@code claimedNode}: the node of the pod's claim; empty for none. */
    NodeRanking(
            Ledger ledger,
            ScoringCache<?> scores,
            Kinds kinds,
            String uid,
            PodGpuRequest request,
            PlacementPolicy policy,
            String claimedNode) {
        this.ledger = ledger;
        this.scores = scores;
        this.kinds = kinds;
        this.scored = policy.scoresCandidates();
        this.results = kinds.of(request, scores, scored, ledger.nodeCount());
        this.uid = uid;
        this.request = request;
        this.policy = policy;
        this.candidates = scored ? Optional.of(new CandidatePlacements(request, scores.models)) : Optional.empty();
        this.claimedNode = claimedNode;
    }

    /** Whether the pod fits on a node now; always equal to {@link Ledger#feasibility}. */
    public Feasibility feasibility(String node) {
        if (node.equals(claimedNode)) {
            return askNode(node, uid, scored).feasibility;
        }
        synchronized (results) {
            int number = evaluated(node);
            return number < 0 ? Ledger.UNKNOWN_NODE : results.feasibility(number);
        }
    }

    /** The policy's score of a node, higher is better; {@link FullnessScores#NONE} if the pod does not fit. */
    public double score(String node) {
        if (node.equals(claimedNode)) {
            return score(node, uid, askNode(node, uid, scored).feasibility);
        }
        synchronized (results) {
            int number = evaluated(node);
            return number < 0 ? FullnessScores.NONE : orAskAgain(byFullness(results.score(number)), node, NO_POD);
        }
    }

    /*
     * Most nodes are not among the best, and an upper bound of the score from an earlier price snapshot shows it without
     * computing the score. The nodes with the highest bounds are scored first: their scores exclude the others.
     */
    /**
     * The nodes with the highest scores among those that the pod fits on, best first; of equal scores the first by name.
     * Nodes that this request can no longer evaluate come last.
     *
     * @param most 0 or more
     * @param refused receives the nodes that the pod does not fit on
     */
    public List<String> best(List<String> names, int most, BiConsumer<String, Feasibility.Refused> refused) {
        int limit = Math.max(1, Math.min(most, names.size()));
        synchronized (results) {
            checkModelVersion();
            int[] numbers = results.numbers(names.size());
            int[] ranks = results.ranks(names.size());
            double[] bounds = results.scratch(names.size());
            int refusals = 0;
            TopK likely = results.likely;
            likely.reset(limit);
            double bar = likely.worst();
            kinds.index.numbers(names, numbers, ranks);
            int claimedNumber = kinds.index.number(claimedNode);
            int unevaluated = 0;
            for (int i = 0; i < names.size(); i++) {
                int number = numbers[i] == claimedNumber ? NodeIndex.UNKNOWN : cached(names.get(i), numbers[i]);
                numbers[i] = number;
                unevaluated += number >= 0 && results.unevaluated(number) ? 1 : 0;
            }
            if (unevaluated > 0) {
                evaluate(names, numbers, ranks, unevaluated);
            }
            PriceSnapshot prices = scores.prices();
            for (int i = 0; i < names.size(); i++) {
                String node = names.get(i);
                int number = numbers[i];
                Feasibility feasibility =
                        number < 0 ? askNode(node, uid, scored).feasibility : results.feasibility(number);
                bounds[i] = number < 0 ? score(node, uid, feasibility) : upperBound(number, prices);
                if (bounds[i] > FullnessScores.NONE) {
                    // With a scoring policy the bar only orders the nodes, so an equal bound need not move it.
                    if (scored ? bounds[i] > bar : bounds[i] >= bar) {
                        likely.add(i, ranks[i], bounds[i]);
                        bar = likely.worst();
                    }
                } else if (feasibility instanceof Feasibility.Refused refuses) {
                    refused.accept(node, refuses);
                    refusals++;
                }
            }
            results.refusals = refusals;
            return scored ? best(names, numbers, ranks, bounds, bar, limit) : likely.sorted(names);
        }
    }

    private double upperBound(int number, PriceSnapshot prices) {
        return results.unevaluated(number) ? notEvaluated(number) : byFullness(results.upperBound(number, prices));
    }

    /** Evaluates nodes while this request may: first by former scores, then by fullness. */
    private void evaluate(List<String> names, int[] numbers, int[] ranks, int unevaluated) {
        var waiting = new ArrayList<Integer>(unevaluated);
        for (int i = 0; i < names.size(); i++) {
            if (numbers[i] >= 0 && results.unevaluated(numbers[i])) {
                waiting.add(i);
            }
        }
        waiting.sort(Comparator.<Integer>comparingDouble(i -> -results.formerScore(numbers[i]))
                .thenComparingDouble(i -> -results.fullness(numbers[i]))
                .thenComparingInt(i -> ranks[i]));
        for (int i = 0; i < waiting.size() && left > 0; i++) {
            int at = waiting.get(i);
            numbers[at] = evaluated(names.get(at));
        }
    }

    /** The provisional score of a node that this request can no longer evaluate. */
    private double notEvaluated(int number) {
        double formerScore = results.formerScore(number);
        return NOT_EVALUATED + (Double.isInfinite(formerScore) ? results.fullness(number) : formerScore);
    }

    /** {@code bar}: nodes whose upper bound reaches it are scored first. */
    private List<String> best(List<String> names, int[] numbers, int[] ranks, double[] bounds, double bar, int limit) {
        TopK best = results.best;
        best.reset(limit);
        for (boolean likely : new boolean[] {true, false}) {
            for (int i = 0; i < names.size(); i++) {
                if (bounds[i] >= bar == likely
                        && bounds[i] > FullnessScores.NONE
                        && best.accepts(ranks[i], bounds[i])) {
                    double score = numbers[i] < 0 ? bounds[i] : score(names.get(i), numbers[i]);
                    if (score > FullnessScores.NONE) {
                        best.add(i, ranks[i], score);
                    }
                }
            }
        }
        return best.sorted(names);
    }

    /** How many nodes will probably refuse: as many as refused the last pod of this kind. */
    public int expectedRefusals() {
        synchronized (results) {
            return results.refusals;
        }
    }

    /**
     * Computes the priorities of nodes, see {@link FullnessScores}. The node of the pod's claim wins, since Filter has
     * answered it and the policy sees the capacity reserved there as allocated.
     *
     * @param priorities receives each node's priority, in their order
     */
    public void prioritize(List<String> names, ObjIntConsumer<String> priorities) {
        synchronized (results) {
            double[] nodeScores = results.scratch(names.size());
            var scale = new FullnessScores(request.preferences());
            int winner = -1;
            for (int i = 0; i < names.size(); i++) {
                nodeScores[i] = scoreWithinLimit(names.get(i));
                if (nodeScores[i] > NOT_EVALUATED / 2) {
                    scale.add(nodeScores[i]);
                }
                if (nodeScores[i] != FullnessScores.NONE
                        && (winner < 0 || wins(names.get(i), nodeScores[i], names.get(winner), nodeScores[winner]))) {
                    winner = i;
                }
            }
            for (int i = 0; i < names.size(); i++) {
                priorities.accept(
                        names.get(i),
                        scale.of(nodeScores[i] > NOT_EVALUATED / 2 ? nodeScores[i] : FullnessScores.NONE, i == winner));
            }
        }
    }

    /** Like {@link #score(String)}, while this request may evaluate nodes. */
    private double scoreWithinLimit(String node) {
        if (node.equals(claimedNode)) {
            return score(node);
        }
        int number = left > 0 ? evaluated(node) : cached(node);
        return number < 0 ? FullnessScores.NONE : score(node, number);
    }

    private boolean wins(String node, double score, String other, double otherScore) {
        return node.equals(claimedNode)
                || (!other.equals(claimedNode)
                        && (score > otherScore || (score == otherScore && node.compareTo(other) < 0)));
    }

    private void checkModelVersion() {
        results.checkModelVersion(scored ? scores.modelVersion() : 0);
    }

    private double byFullness(double fullness) {
        return scored || fullness == FullnessScores.NONE ? fullness : policy.rateFullness(fullness);
    }

    /** The score of a node whose answer is cached. */
    private double score(String node, int number) {
        if (results.unevaluated(number)) {
            return notEvaluated(number);
        }
        double score = byFullness(results.score(number));
        if (!Double.isNaN(score)) {
            return score;
        }
        // Another request has brought a new model version meanwhile.
        if (left <= 0) {
            return NOT_EVALUATED;
        }
        Feasibility feasibility = askNode(node, NO_POD, true).feasibility;
        return score(node, NO_POD, feasibility);
    }

    /** The score of a node that has just answered. */
    private double score(String node, String pod, Feasibility feasibility) {
        if (feasibility instanceof ScoringCache<?>.Evaluated evaluated) {
            return orAskAgain(evaluated.score(), node, pod);
        }
        return feasibility instanceof Feasibility.Fits fits ? byFullness(fits.fullness()) : FullnessScores.NONE;
    }

    /** Asks the node again if another request has brought a new model version. */
    private double orAskAgain(double score, String node, String pod) {
        return Double.isNaN(score) ? score(node, pod, askNode(node, pod, scored).feasibility) : score;
    }

    /** The terms of a score. */
    public List<ScoreTerm> terms(Feasibility.Fits feasibility) {
        return feasibility instanceof ScoringCache<?>.Evaluated evaluated
                ? evaluated.front.terms()
                : List.of(new ScoreTerm("fullness", feasibility.fullness() * FreeCapacity.WHOLE));
    }

    /** Caches a node's answer if it is not cached; the node may be left unevaluated. Returns its number. */
    private int cached(String node) {
        checkModelVersion();
        return cached(node, kinds.index.number(node));
    }

    private int cached(String node, int number) {
        return number >= 0 && results.isCurrent(number, kinds.changes.of(number))
                ? number
                : put(node, scored && left > EVALUATIONS - UNSORTED);
    }

    /** Caches a node's answer, evaluated if the pod fits. Returns its number. */
    private int evaluated(String node) {
        checkModelVersion();
        int number = kinds.index.number(node);
        return number >= 0 && results.isCurrent(number, kinds.changes.of(number)) && !results.unevaluated(number)
                ? number
                : put(node, scored);
    }

    private int put(String node, boolean evaluate) {
        // No claim is disregarded, not even one that the pod has got since: the answer is for all pods of the kind.
        Answer answer = askNode(node, NO_POD, evaluate);
        if (answer.number >= 0) {
            results.put(answer.number, answer.changes, answer.feasibility, scored);
        }
        return answer.number;
    }

    /** Asks the node, disregarding this pod's claim. */
    private Answer askNode(String node, String pod, boolean evaluate) {
        Optional<NodeAccountView> found = ledger.account(node);
        if (found.isEmpty()) {
            return UNKNOWN;
        }
        NodeAccountView account = found.get();
        long changes;
        Feasibility feasibility;
        synchronized (account) {
            changes = account.changes();
            feasibility = account.feasibility(pod, request, Set.of(), evaluate ? candidates : Optional.empty());
        }
        if (evaluate && candidates.isPresent() && feasibility instanceof Feasibility.Fits fits) {
            // Evaluated without the node's lock, so that other threads can use the node.
            ScoringCache<?>.Evaluated evaluated = scores.evaluate(fits.fullness(), candidates.get());
            left -= 1 + evaluated.evaluations;
            return new Answer(account.number(), changes, evaluated);
        }
        return new Answer(account.number(), changes, feasibility);
    }
}
