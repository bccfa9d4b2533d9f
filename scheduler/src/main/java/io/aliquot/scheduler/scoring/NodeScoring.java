package io.aliquot.scheduler.scoring;

import io.aliquot.api.Placement;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.placement.PlacementPolicy;
import io.aliquot.scheduler.placement.PodGpuRequest;

/** Which nodes of a ledger a pod fits on, and which the placement policy prefers. Thread-safe. */
public final class NodeScoring {
    private final Ledger ledger;
    private final ScoringCache<?> scores;
    private final FeasibilityCache cache = new FeasibilityCache();

    /**
     * Connects the policy to a ledger that has none yet.
     *
     * @param policy scores the candidates of placement policies that score them
     */
    public NodeScoring(Ledger ledger, ScoringPolicy<?> policy) {
        this.ledger = ledger;
        this.scores = new ScoringCache<>(policy, ledger.models());
        ledger.connect(scores, scores);
    }

    /** Reports a pod that is to be placed, by any policy; the scoring policy learns the workload from all of them. */
    public void observe(String uid, PodGpuRequest request) {
        scores.observe(uid, request, ledger::boundRequests);
    }

    /**
     * The nodes that fit this pod, and which of them is best, for one request.
     *
     * @param placement the name of the policy by which the pod's node is chosen
     */
    public NodeRanking forPod(String uid, PodGpuRequest request, Placement placement) {
        var policy = PlacementPolicy.of(placement);
        if (policy.scoresCandidates()) {
            scores.refresh();
        }
        return new NodeRanking(
                ledger, scores, cache, uid, request, policy, ledger.nodeOf(uid).orElse(""));
    }
}
