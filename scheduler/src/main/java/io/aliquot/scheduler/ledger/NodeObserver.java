package io.aliquot.scheduler.ledger;

/** Is notified of changes of nodes' accounts. Calls of one node are serialized by its account's lock; they must be fast. */
public interface NodeObserver {
    /** Anything that the answer to a pod depends on has changed. Called with the account's lock held. */
    void nodeChanged(NodeAccountView account);

    /** The ledger has dropped the node; another node may get its number after this call. */
    void nodeClosed(String node);
}
