package io.aliquot.scheduler.ledger;

import io.aliquot.api.Inventory;
import io.aliquot.api.Placement;

/** What a node is to the ledger. */
public sealed interface NodeFacts {
    /**
     * It shares its GPUs.
     *
     * @param gpuPlacement how to choose among its GPUs where a pod doesn't say
     * @param allocatable its CPU and memory
     */
    record Sharing(Inventory inventory, Placement gpuPlacement, HostLoad allocatable) implements NodeFacts {}

    /**
     * It takes no part now; what pods hold there is remembered all the same.
     *
     * @param reason a few constant words for a pod that would have gone there
     */
    record LeftOut(String reason) implements NodeFacts {}
}
