package io.aliquot.scheduler.ledger;

import io.aliquot.api.Inventory;
import io.aliquot.api.Placement;
import io.aliquot.api.SharingMode;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeGpus;
import java.util.Set;

/** What the ledger knows of a node. */
public sealed interface NodeFacts {
    /**
     * A node that shares its GPUs.
     *
     * @param gpuPlacement policy that selects GPUs for pods that do not name one
     * @param allocatable CPU and memory
     */
    record Sharing(NodeGpus cards, Placement gpuPlacement, HostResources allocatable) implements NodeFacts {
        /** A node that shares its GPUs by memory and cores, none of them cordoned. */
        public Sharing(Inventory inventory, Placement gpuPlacement, HostResources allocatable) {
            this(new NodeGpus(inventory, SharingMode.CORE_MEMORY, Set.of()), gpuPlacement, allocatable);
        }

        public Inventory inventory() {
            return cards.inventory();
        }
    }

    /**
     * A node that takes no pods now. The ledger keeps the claims on it.
     *
     * @param reason a few constant words
     */
    record LeftOut(String reason) implements NodeFacts {}
}
