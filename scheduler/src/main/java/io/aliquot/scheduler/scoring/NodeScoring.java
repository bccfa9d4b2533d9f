package io.aliquot.scheduler.scoring;

import io.aliquot.api.Placement;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeAccountView;
import io.aliquot.scheduler.placement.PlacementPolicy;
import io.aliquot.scheduler.placement.PodGpuRequest;

/** Which nodes of a ledger a pod fits on, and which the placement policy prefers. Thread-safe. */
public final class NodeScoring {
    private final Ledger ledger;
    private final ScoringCache<?> scores;
    private final NodeRanking.Kinds kinds;

    /**
     * Connects the policy to a ledger that has none yet.
     *
     * @param policy scores the candidates of placement policies that score them
     */
    public NodeScoring(Ledger ledger, ScoringPolicy<?> policy) {
        this.ledger = ledger;
        var index = new NodeIndex(
                node -> ledger.account(node).map(NodeAccountView::number).orElse(NodeIndex.UNKNOWN));
        this.scores = new ScoringCache<>(policy, ledger.models(), index);
        this.kinds = new NodeRanking.Kinds(ledger.changes(), index);
        ledger.connect(scores, scores);
    }

    /** Reports a pod that is to be placed, by any policy; the scoring policy learns the workload from all of them. */
    public void observe(String uid, PodGpuRequest request) {
        scores.observe(uid, request, ledger::boundRequests);
    }

    /**
     * What the nodes answer one request about this pod.
     *
     * @param placement the name of the policy by which the pod's node is chosen
     */
    public NodeRanking forPod(String uid, PodGpuRequest request, Placement placement) {
        var policy = PlacementPolicy.of(placement);
        if (policy.scoresCandidates()) {
            scores.refresh();
        }
        return new NodeRanking(
                ledger, scores, kinds, uid, request, policy, ledger.nodeOf(uid).orElse(""));
    }
}
