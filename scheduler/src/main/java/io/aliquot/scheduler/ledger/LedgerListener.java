package io.aliquot.scheduler.ledger;

/** Hears of what happened in the ledger; called outside its locks, and must return soon. */
public interface LedgerListener {
    /** A pod that didn't fit on this node before may fit now. */
    void capacityFreed(String node);

    /**
     * The cluster tells of more than a GPU has, which nothing that this ledger granted can bring about, or of less than
     * pods hold. A watch that lags can make it look so for a moment: read {@link Ledger#holders} before doing anything
     * about it.
     */
    void overallocated(String node, String gpu);
}
