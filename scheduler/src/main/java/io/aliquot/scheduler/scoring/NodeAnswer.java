package io.aliquot.scheduler.scoring;

import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeAccountView;
import io.aliquot.scheduler.placement.Feasibility;
import org.jspecify.annotations.Nullable;

/** The last answer of one node to one kind of pod. Callers synchronize on the kind. */
final class NodeAnswer {
    final String node;
    /** The node's account; null if there is none. */
    final @Nullable NodeAccountView account;

    private Feasibility feasibility = Ledger.UNKNOWN_NODE;
    /** The account's count of changes at the answer. */
    private long changes = NodeAccountView.CLOSED;
    /** The version of the model that computed {@code score}; 0 if none did. */
    private int scoredBy;

    private double score;

    /** The score in the request that locks the kind; {@link NodeRanking} sets it. */
    double rank;

    /** Before the first answer of this account. */
    NodeAnswer(String node, @Nullable NodeAccountView account) {
        this.node = node;
        this.account = account;
    }

    Feasibility feasibility() {
        return feasibility;
    }

    /** Whether the node has not changed since. */
    boolean isCurrent() {
        return account != null && changes != NodeAccountView.CLOSED && account.changes() == changes;
    }

    /** Replaces the answer and drops its score; {@code changes} is the account's count at the answer. */
    void set(Feasibility feasibility, long changes) {
        this.feasibility = feasibility;
        this.changes = changes;
        scoredBy = 0;
    }

    void setScore(double score, int modelVersion) {
        this.score = score;
        scoredBy = modelVersion;
    }

    boolean isScoredBy(int modelVersion) {
        return scoredBy == modelVersion;
    }

    /** The score by the model that scored the node. */
    double score() {
        return score;
    }

    /** How full the node is with the pod; the pod must fit. */
    double fullness() {
        return ((Feasibility.Fits) feasibility).fullness();
    }
}
