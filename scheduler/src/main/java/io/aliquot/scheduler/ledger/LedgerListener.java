package io.aliquot.scheduler.ledger;

/** Receives events of the ledger. Calls are made without its locks and must be fast. */
public interface LedgerListener {
    /** A pod that did not fit on this node may fit now. */
    void capacityFreed(String node);

    /**
     * Bound pods hold more of a GPU than its capacity: another program allocated it, or the capacity shrank. A delayed
     * watch can cause a false report, so read the pods of {@link Ledger#holders} before acting on it.
     */
    void overallocated(String node, String gpu);
}
