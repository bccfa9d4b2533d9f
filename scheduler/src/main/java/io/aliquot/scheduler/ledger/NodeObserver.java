package io.aliquot.scheduler.ledger;

/** Is notified of changes of nodes' accounts. Calls of one node are serialized by its account's lock; they must be fast. */
@FunctionalInterface
public interface NodeObserver {
    /** Anything that the answer to a pod depends on has changed. Called with the account's lock held. */
    void nodeChanged(NodeAccountView account);
}
