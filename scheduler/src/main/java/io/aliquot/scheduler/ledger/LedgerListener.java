package io.aliquot.scheduler.ledger;

import java.util.Set;

/** Hears of what happened in the ledger; called outside its locks, and must return soon. */
public interface LedgerListener {
    /** A pod that didn't fit on this node before may fit now. */
    void roomFreed(String node);

    /**
     * The cluster tells of more than a GPU has, which nothing that this ledger granted can bring about. A watch that
     * lags can make it look so for a moment: read the holders before doing anything about it.
     *
     * @param latest the pod that it was noticed with
     * @param holders all that hold a part of the GPU
     */
    void oversold(String node, String gpu, PodId latest, Set<PodId> holders);
}
