package io.aliquot.scheduler.scoring;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeAccountView;
import io.aliquot.scheduler.placement.CandidatePlacements;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.Feasibility.Fits;
import io.aliquot.scheduler.placement.Feasibility.Refused;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.PlacementPolicy;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.scoring.NodeScoring.VersionedModel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.PriorityQueue;
import java.util.Random;
import java.util.Set;
import java.util.function.BiConsumer;
import java.util.function.ObjIntConsumer;

/*
 * Whether a pod fits is asked of every node. A score costs far more, and after a change of the model, and for the first pod
 * of a kind, no node has one. So one request scores at most CANDIDATES placements: half of them on the fullest nodes that
 * fit, half on a random sample of the others, like kube-scheduler's percentageOfNodesToScore. Nodes without a score rank last.
 * A score is kept until its node or the model changes, so the next requests of the kind score the others.
 *
 * The pod's own claim is disregarded, so the cached answer of the node that has it does not apply: that node is asked
 * directly.
 *
 * Locks: first the kind's, then an account's.
 */
/**
 * The top N nodes for one pod, for one request: which nodes fit, which of them are scored, and which have the highest
 * scores by the pod's {@link PlacementPolicy}.
 */
public final class NodeRanking {
    /** The most candidate placements that one request scores, with those of the last node at most 15 more. */
    static final int CANDIDATES = 192;

    /** Less than the score of any scored node. */
    private static final double NOT_SCORED = -1e12;

    private static final String NO_POD = "";

    private final Ledger ledger;
    private final VersionedModel model;
    private final FeasibilityCache.Kind kind;
    private final String uid;
    private final PodGpuRequest request;
    private final PlacementPolicy policy;
    /** Buffer for a node's candidates. */
    private final CandidatePlacements candidates;
    /** The node of the pod's claim; empty for none. */
    private final String claimedNode;
    /** Candidates that this request may still score. */
    @GuardedBy("kind")
    private int left = CANDIDATES;

    /** {@code claimedNode}: the node of the pod's claim; empty for none. */
    NodeRanking(
            Ledger ledger,
            VersionedModel model,
            FeasibilityCache cache,
            String uid,
            PodGpuRequest request,
            PlacementPolicy policy,
            String claimedNode) {
        this.ledger = ledger;
        this.model = model;
        this.kind = cache.kind(request, policy.scoresCandidates(), ledger.nodeCount());
        this.uid = uid;
        this.request = request;
        this.policy = policy;
        this.candidates = new CandidatePlacements(request, ledger.models());
        this.claimedNode = claimedNode;
    }

    /** Whether the pod fits on a node now; always equal to {@link Ledger#feasibility}. */
    public Feasibility feasibility(String node) {
        synchronized (kind) {
            return answer(node).feasibility();
        }
    }

    /** The policy's score of a node, higher is better; {@link PriorityScale#NONE} if the pod does not fit. */
    public double score(String node) {
        synchronized (kind) {
            NodeAnswer answer = scored(answer(node));
            return answer.feasibility() instanceof Fits ? score(answer) : PriorityScale.NONE;
        }
    }

    /** The terms of that score; empty if the pod does not fit. */
    public List<ScoreTerm> terms(String node) {
        synchronized (kind) {
            NodeAnswer answer = answer(node);
            if (policy.scoresCandidates()) {
                ask(answer, true);
            }
            if (!(answer.feasibility() instanceof Fits fits)) {
                return List.of();
            }
            return policy.scoresCandidates()
                    ? model.terms(candidates, model.best(candidates).candidate())
                    : List.of(new ScoreTerm("fullness", fits.fullness() * FreeCapacity.WHOLE));
        }
    }

    /**
     * The nodes with the highest scores among those that the pod fits on, best first; of equal scores the first by name.
     * Nodes that this request does not score come last.
     *
     * @param most 0 or more
     * @param refused receives the nodes that the pod does not fit on
     */
    public List<String> best(List<String> names, int most, BiConsumer<String, Refused> refused) {
        int limit = Math.max(1, Math.min(most, names.size()));
        var best = new PriorityQueue<NodeAnswer>(limit, NodeRanking::worstFirst);
        synchronized (kind) {
            for (NodeAnswer answer : answers(names)) {
                if (answer.feasibility() instanceof Refused refusal) {
                    refused.accept(answer.node, refusal);
                    continue;
                }
                answer.rank = score(answer);
                if (best.size() < limit) {
                    best.add(answer);
                } else if (worstFirst(answer, best.element()) > 0) {
                    best.remove();
                    best.add(answer);
                }
            }
            var sorted = new String[best.size()];
            for (int i = sorted.length - 1; i >= 0; i--) {
                sorted[i] = best.remove().node;
            }
            return Arrays.asList(sorted);
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
            List<NodeAnswer> answers = answers(names);
            var scale = new PriorityScale(request.preferences());
            NodeAnswer winner = null;
            for (NodeAnswer answer : answers) {
                if (answer.feasibility() instanceof Fits) {
                    answer.rank = score(answer);
                    scale.add(priorityScore(answer));
                    winner = winner == null || wins(answer, winner) ? answer : winner;
                }
            }
            for (NodeAnswer answer : answers) {
                priorities.accept(answer.node, scale.of(priorityScore(answer), answer == winner));
            }
        }
    }

    private boolean wins(NodeAnswer answer, NodeAnswer other) {
        return answer.node.equals(claimedNode) || (!other.node.equals(claimedNode) && worstFirst(answer, other) > 0);
    }

    /** A node without a score has the priority of one that does not fit. */
    private double priorityScore(NodeAnswer answer) {
        return answer.feasibility() instanceof Fits && !needsScore(answer) ? answer.rank : PriorityScale.NONE;
    }

    /** The score of a node that the pod fits on; below all others if it is not scored. */
    private double score(NodeAnswer answer) {
        if (!policy.scoresCandidates()) {
            return policy.rateFullness(answer.fullness());
        }
        return needsScore(answer) ? NOT_SCORED + answer.fullness() : answer.score();
    }

    /** Of equal scores the last by name is the worst. */
    private static int worstFirst(NodeAnswer one, NodeAnswer other) {
        return one.rank != other.rank ? Double.compare(one.rank, other.rank) : other.node.compareTo(one.node);
    }

    private boolean needsScore(NodeAnswer answer) {
        return policy.scoresCandidates() && answer.feasibility() instanceof Fits && !answer.isScoredBy(model.version());
    }

    /** The nodes' answers now, in their order; some of those that fit may lack a score. */
    @GuardedBy("kind")
    private List<NodeAnswer> answers(List<String> names) {
        var answers = new ArrayList<NodeAnswer>(names.size());
        var unscored = new ArrayList<NodeAnswer>();
        for (String name : names) {
            NodeAnswer answer = answer(name);
            answers.add(answer);
            if (needsScore(answer)) {
                unscored.add(answer);
            }
        }
        unscored.sort(
                Comparator.comparingDouble(NodeAnswer::fullness).reversed().thenComparing(answer -> answer.node));
        int next = 0;
        while (next < unscored.size() && left > CANDIDATES / 2) {
            scored(unscored.get(next++));
        }
        List<NodeAnswer> others = unscored.subList(next, unscored.size());
        Collections.shuffle(others, new Random(0));
        for (int i = 0; i < others.size() && left > 0; i++) {
            scored(others.get(i));
        }
        return answers;
    }

    /** The node's answer now, perhaps without a score. */
    @GuardedBy("kind")
    private NodeAnswer answer(String node) {
        boolean claimed = node.equals(claimedNode);
        NodeAnswer known = claimed ? null : kind.findCurrent(node);
        if (known != null) {
            return known;
        }
        Optional<NodeAccountView> account = ledger.account(node);
        if (account.isEmpty()) {
            return new NodeAnswer(node, null);
        }
        NodeAnswer answer =
                claimed ? new NodeAnswer(node, account.get()) : kind.open(node, account.get(), ledger.nodeCount());
        ask(answer, claimed && policy.scoresCandidates());
        return answer;
    }

    /** The answer, with a score if the pod still fits and the policy scores candidates. */
    @GuardedBy("kind")
    private NodeAnswer scored(NodeAnswer answer) {
        if (needsScore(answer)) {
            ask(answer, true);
        }
        return answer;
    }

    /**
     * Asks the node again. The cached answer is for all pods of the kind: no claim is disregarded, not even one that the
     * pod has got since.
     */
    @GuardedBy("kind")
    private void ask(NodeAnswer answer, boolean score) {
        NodeAccountView account = answer.account;
        if (account == null) {
            return;
        }
        synchronized (account) {
            answer.set(
                    account.feasibility(
                            answer.node.equals(claimedNode) ? uid : NO_POD,
                            request,
                            Set.of(),
                            score ? Optional.of(candidates) : Optional.empty()),
                    account.changes());
        }
        if (score && answer.feasibility() instanceof Fits) {
            // Without the node's lock, so that other threads can use the node.
            answer.setScore(model.best(candidates).score(), model.version());
            left -= candidates.count();
        }
    }
}
