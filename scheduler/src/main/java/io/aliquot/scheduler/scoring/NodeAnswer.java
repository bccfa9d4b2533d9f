package io.aliquot.scheduler.scoring;

import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeAccountView;
import io.aliquot.scheduler.placement.Feasibility;
import java.util.Comparator;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** The last answer of one node to one kind of pod. Callers synchronize on the kind. */
final class NodeAnswer {
    /** Worst first; of equal scores the last by name. */
    static final Comparator<NodeAnswer> WORST_FIRST = (one, other) ->
            one.score != other.score ? Double.compare(one.score, other.score) : other.node.compareTo(one.node);

    final String node;
    /** The node's account; null if there is none. */
    final @Nullable NodeAccountView account;

    private Feasibility feasibility = Ledger.UNKNOWN_NODE;
    /** Of a node that is evaluated; null otherwise. */
    private ScoringCache<?>.@Nullable ParetoFront front;

    private double tieBreak;
    /** The account's count of changes at the answer. */
    private long changes = NodeAccountView.CLOSED;
    /** The last score by an earlier model or before the node changed; infinite if there is none. */
    private double formerScore = Double.POSITIVE_INFINITY;

    /** An upper bound of the score, and the score itself; computed by each request that compares nodes. */
    double bound;

    double score;

    /** Before the node's first answer, or if the ledger does not know the node. */
    NodeAnswer(String node) {
        this.node = node;
        this.account = null;
    }

    /** Before the first answer of this account. */
    NodeAnswer(String node, NodeAccountView account) {
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

    /** {@code changes}: the account's count at the answer; {@link NodeAccountView#CLOSED} for an answer not to be used again. */
    void set(Feasibility feasibility, long changes) {
        forgetEvaluation();
        this.feasibility = feasibility;
        front = feasibility instanceof ScoringCache<?>.Evaluated evaluated ? evaluated.front : null;
        tieBreak = feasibility instanceof ScoringCache<?>.Evaluated evaluated ? evaluated.tieBreak : 0;
        this.changes = changes;
    }

    boolean isEvaluated(int modelVersion) {
        return front != null && front.modelVersion == modelVersion;
    }

    /** Drops an evaluation, which is large, except for its score. */
    void forgetEvaluation() {
        if (front != null) {
            formerScore = front.lastScore() + tieBreak;
            front = null;
            feasibility = new Feasibility.Fits(fullness());
        }
    }

    /** An upper bound of the score of an evaluated node. */
    double upperBound() {
        return Objects.requireNonNull(front).upperBound() + tieBreak;
    }

    /** The score of an evaluated node now; NaN if the model version has changed. */
    double currentScore() {
        return Objects.requireNonNull(front).score() + tieBreak;
    }

    double formerScore() {
        return formerScore;
    }

    /** How full the node is with the pod; the pod must fit. */
    double fullness() {
        return ((Feasibility.Fits) feasibility).fullness();
    }
}
