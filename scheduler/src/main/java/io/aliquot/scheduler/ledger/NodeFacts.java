package io.aliquot.scheduler.ledger;

import io.aliquot.api.Inventory;
import io.aliquot.api.Placement;
import io.aliquot.api.SharingMode;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeGpus;
import java.util.Set;

/** What a node is to the ledger. */
public sealed interface NodeFacts {
    /**
     * It shares its GPUs.
     *
     * @param gpuPlacement how to choose among its GPUs where a pod doesn't say
     * @param allocatable its CPU and memory
     */
    record Sharing(NodeGpus cards, Placement gpuPlacement, HostResources allocatable) implements NodeFacts {
        /** By memory and compute, without a cordon. */
        public Sharing(Inventory inventory, Placement gpuPlacement, HostResources allocatable) {
            this(new NodeGpus(inventory, SharingMode.CORE_MEMORY, Set.of()), gpuPlacement, allocatable);
        }

        public Inventory inventory() {
            return cards.inventory();
        }
    }

    /**
     * It takes no part now; what pods hold there is remembered all the same.
     *
     * @param reason a few constant words for a pod that would have gone there
     */
    record LeftOut(String reason) implements NodeFacts {}
}
