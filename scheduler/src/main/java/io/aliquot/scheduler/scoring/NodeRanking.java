package io.aliquot.scheduler.scoring;

import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeAccountView;
import io.aliquot.scheduler.placement.CandidatePlacements;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.Feasibility.Fits;
import io.aliquot.scheduler.placement.Feasibility.Refused;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.PlacementPolicy;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.PriorityQueue;
import java.util.Set;
import java.util.function.BiConsumer;
import java.util.function.ObjIntConsumer;

/*
 * Evaluating a node is far more expensive than asking whether a pod fits, and at times all nodes need it: when the scoring
 * policy has a new model, and for the first pod of a kind. One request evaluates at most EVALUATIONS: first the nodes with
 * the highest former scores, or the fullest where there is none. Nodes that are not evaluated come last, and the next
 * requests of the kind continue with them.
 *
 * The pod's own claim is disregarded, so the cached answer of the node that has it does not apply: that node is asked
 * directly.
 *
 * Locks: first the kind's, then an account's.
 */
/**
 * The nodes that fit one pod, and which of them is best, for one request: it knows the node of the pod's claim. The pod's
 * {@link PlacementPolicy} decides which node is better.
 */
public final class NodeRanking {
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

    private final Ledger ledger;
    private final ScoringCache<?> scores;
    private final FeasibilityCache.Kind kind;
    private final String uid;
    private final PodGpuRequest request;
    private final PlacementPolicy policy;
    /** Buffer for a node's candidates; empty if the policy does not score them. */
    private final Optional<CandidatePlacements> candidates;
    /** The node of the pod's claim; empty for none. */
    private final String claimedNode;
    /** Evaluations left to this request. Guarded by {@code kind}. */
    private int left = EVALUATIONS;

    /** {@code claimedNode}: the node of the pod's claim; empty for none. */
    NodeRanking(
            Ledger ledger,
            ScoringCache<?> scores,
            FeasibilityCache cache,
            String uid,
            PodGpuRequest request,
            PlacementPolicy policy,
            String claimedNode) {
        this.ledger = ledger;
        this.scores = scores;
        this.kind = cache.kind(request, policy.scoresCandidates(), scores.modelVersion(), ledger.nodeCount());
        this.uid = uid;
        this.request = request;
        this.policy = policy;
        this.candidates = policy.scoresCandidates()
                ? Optional.of(new CandidatePlacements(request, scores.models))
                : Optional.empty();
        this.claimedNode = claimedNode;
    }

    /** Whether the pod fits on a node now; always equal to {@link Ledger#feasibility}. */
    public Feasibility feasibility(String node) {
        synchronized (kind) {
            return evaluated(node).feasibility();
        }
    }

    /** The policy's score of a node, higher is better; {@link PriorityScale#NONE} if the pod does not fit. */
    public double score(String node) {
        synchronized (kind) {
            while (true) {
                NodeAnswer answer = evaluated(node);
                double score = answer.feasibility() instanceof Fits ? score(answer) : PriorityScale.NONE;
                if (!isProvisional(score)) {
                    return score;
                }
            }
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
    public List<String> best(List<String> names, int most, BiConsumer<String, Refused> refused) {
        int limit = Math.max(1, Math.min(most, names.size()));
        synchronized (kind) {
            List<NodeAnswer> fitting = fitting(names, refused);
            synchronized (scores) { // so that prices and model stay the same, and because each score needs this lock
                return best(fitting, limit);
            }
        }
    }

    private List<String> best(List<NodeAnswer> fitting, int limit) {
        var best = new PriorityQueue<NodeAnswer>(limit, NodeAnswer.WORST_FIRST);
        for (NodeAnswer answer : fitting) {
            answer.bound = upperBound(answer);
            answer.score = answer.bound;
            offer(best, answer, limit);
        }
        if (policy.scoresCandidates()) {
            double bar = best.size() < limit ? PriorityScale.NONE : best.element().bound;
            best.clear();
            for (boolean likely : new boolean[] {true, false}) {
                for (NodeAnswer answer : fitting) {
                    if (answer.bound >= bar == likely && isAmongBest(best, answer, limit)) {
                        answer.score = score(answer);
                        offer(best, answer, limit);
                    }
                }
            }
        }
        return sorted(best);
    }

    /** The answers of the nodes that the pod fits on, evaluated while this request may: first the most promising. */
    private List<NodeAnswer> fitting(List<String> names, BiConsumer<String, Refused> refused) {
        NodeAnswer[] answers = kind.find(names);
        var unevaluated = new ArrayList<NodeAnswer>();
        int modelVersion = scores.modelVersion();
        for (int i = 0; i < answers.length; i++) {
            answers[i] = current(answers[i]);
            if (!isEvaluated(answers[i], modelVersion)) {
                unevaluated.add(answers[i]);
            }
        }
        unevaluated.sort(Comparator.comparingDouble(NodeAnswer::formerScore)
                .thenComparingDouble(NodeAnswer::fullness)
                .reversed()
                .thenComparing(answer -> answer.node));
        for (int i = 0; i < unevaluated.size() && left > 0; i++) {
            ask(unevaluated.get(i).node, true);
        }
        var fitting = new ArrayList<NodeAnswer>(answers.length);
        kind.refusals = 0;
        for (NodeAnswer answer : answers) {
            if (answer.feasibility() instanceof Refused refusal) {
                refused.accept(answer.node, refusal);
                kind.refusals++;
            } else {
                fitting.add(answer);
            }
        }
        return fitting;
    }

    private static void offer(PriorityQueue<NodeAnswer> best, NodeAnswer answer, int limit) {
        if (isAmongBest(best, answer, limit)) {
            if (best.size() == limit) {
                best.remove();
            }
            best.add(answer);
        }
    }

    private static boolean isAmongBest(PriorityQueue<NodeAnswer> best, NodeAnswer answer, int limit) {
        return best.size() < limit || NodeAnswer.WORST_FIRST.compare(answer, best.element()) > 0;
    }

    private static List<String> sorted(PriorityQueue<NodeAnswer> best) {
        var names = new String[best.size()];
        for (int i = names.length - 1; i >= 0; i--) {
            names[i] = best.remove().node;
        }
        return Arrays.asList(names);
    }

    /** How many nodes will probably refuse: as many as refused the last pod of this kind. */
    public int expectedRefusals() {
        synchronized (kind) {
            return kind.refusals;
        }
    }

    /**
     * Computes the priorities of nodes, see {@link PriorityScale}. The node of the pod's claim wins, since Filter has
     * answered it and the policy sees the capacity reserved there as allocated.
     *
     * @param priorities receives each node's priority, in their order
     */
    public void prioritize(List<String> names, ObjIntConsumer<String> priorities) {
        synchronized (kind) {
            var scale = new PriorityScale(request.preferences());
            var answers = new ArrayList<NodeAnswer>(names.size());
            NodeAnswer winner = null;
            for (String node : names) {
                NodeAnswer answer = left > 0 ? evaluated(node) : current(kind.find(node));
                answers.add(answer);
                if (answer.feasibility() instanceof Fits) {
                    answer.score = score(answer);
                    scale.add(isProvisional(answer.score) ? PriorityScale.NONE : answer.score);
                    winner = winner == null || wins(answer, winner) ? answer : winner;
                } else {
                    answer.score = PriorityScale.NONE;
                }
            }
            for (NodeAnswer answer : answers) {
                priorities.accept(
                        answer.node,
                        scale.of(isProvisional(answer.score) ? PriorityScale.NONE : answer.score, answer == winner));
            }
        }
    }

    private boolean wins(NodeAnswer answer, NodeAnswer other) {
        return answer.node.equals(claimedNode)
                || (!other.node.equals(claimedNode) && NodeAnswer.WORST_FIRST.compare(answer, other) > 0);
    }

    /** The terms of a score. */
    public List<ScoreTerm> terms(Fits feasibility) {
        return feasibility instanceof ScoringCache<?>.Evaluated evaluated
                ? evaluated.front.terms()
                : List.of(new ScoreTerm("fullness", feasibility.fullness() * FreeCapacity.WHOLE));
    }

    private double upperBound(NodeAnswer answer) {
        if (!policy.scoresCandidates()) {
            return policy.rateFullness(answer.fullness());
        }
        return answer.isEvaluated(scores.modelVersion()) ? answer.upperBound() : provisionalScore(answer);
    }

    private double score(NodeAnswer answer) {
        if (!policy.scoresCandidates()) {
            return policy.rateFullness(answer.fullness());
        }
        double score = answer.isEvaluated(scores.modelVersion()) ? answer.currentScore() : Double.NaN;
        return Double.isNaN(score) ? provisionalScore(answer) : score;
    }

    /** The score of a node that fits and that this request can no longer evaluate, or that has to be evaluated again. */
    private static double provisionalScore(NodeAnswer answer) {
        double formerScore = answer.formerScore();
        return NOT_EVALUATED + (Double.isInfinite(formerScore) ? answer.fullness() : formerScore);
    }

    private static boolean isProvisional(double score) {
        return score < NOT_EVALUATED / 2 && score != PriorityScale.NONE;
    }

    /** Whether the node need not be evaluated, or is. */
    private boolean isEvaluated(NodeAnswer answer, int modelVersion) {
        return !policy.scoresCandidates()
                || answer.isEvaluated(modelVersion)
                || answer.feasibility() instanceof Refused;
    }

    /** The node's answer now; it may be left unevaluated. */
    private NodeAnswer current(NodeAnswer known) {
        boolean claimed = known.node.equals(claimedNode);
        return known.isCurrent() && !claimed ? known : ask(known.node, claimed || left > EVALUATIONS - UNSORTED);
    }

    /** The node's answer now, evaluated if the pod fits. */
    private NodeAnswer evaluated(String node) {
        NodeAnswer known = kind.find(node);
        return known.isCurrent() && isEvaluated(known, scores.modelVersion()) && !node.equals(claimedNode)
                ? known
                : ask(node, true);
    }

    /** Asks the node, and evaluates it if the pod fits and the policy scores candidates. */
    private NodeAnswer ask(String node, boolean evaluate) {
        Optional<NodeAccountView> found = ledger.account(node);
        if (found.isEmpty()) {
            return new NodeAnswer(node);
        }
        NodeAccountView account = found.get();
        // The cached answer is for all pods of the kind: no claim is disregarded, not even one that the pod has got
        // since.
        boolean claimed = node.equals(claimedNode);
        NodeAnswer answer = claimed ? new NodeAnswer(node, account) : kind.open(node, account, ledger.nodeCount());
        long changes;
        Feasibility feasibility;
        synchronized (account) {
            changes = account.changes();
            feasibility = account.feasibility(
                    claimed ? uid : NO_POD, request, Set.of(), evaluate ? candidates : Optional.empty());
        }
        if (evaluate && candidates.isPresent() && feasibility instanceof Fits fits) {
            // Evaluated without the node's lock, so that other threads can use the node.
            ScoringCache<?>.Evaluated evaluated = scores.evaluate(fits.fullness(), candidates.get());
            left -= 1 + evaluated.evaluations;
            feasibility = evaluated;
        }
        answer.set(feasibility, claimed ? NodeAccountView.CLOSED : changes);
        return answer;
    }
}
