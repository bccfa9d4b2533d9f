package io.aliquot.scheduler.ledger;

import io.aliquot.api.Inventory;
import io.aliquot.api.Placement;
import io.aliquot.api.Share;
import io.aliquot.scheduler.placement.Cards;
import io.aliquot.scheduler.placement.HostLoad;
import java.util.Set;

/** What a node is to the ledger. */
public sealed interface NodeFacts {
    /**
     * It shares its GPUs.
     *
     * @param gpuPlacement how to choose among its GPUs where a pod doesn't say
     * @param allocatable its CPU and memory
     */
    record Sharing(Cards cards, Placement gpuPlacement, HostLoad allocatable) implements NodeFacts {
        /** By memory and compute, without a cordon. */
        public Sharing(Inventory inventory, Placement gpuPlacement, HostLoad allocatable) {
            this(new Cards(inventory, Share.CORE_MEMORY, Set.of()), gpuPlacement, allocatable);
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
