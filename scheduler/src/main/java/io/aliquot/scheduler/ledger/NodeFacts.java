package io.aliquot.scheduler.ledger;

import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.NodeLabel;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeGpus;
import io.aliquot.scheduler.placement.NodeRuntime;
import java.util.Set;

/** What the ledger knows of a node. */
public sealed interface NodeFacts {
    /**
     * A node that shares its GPUs.
     *
     * @param gpus with their capacity
     * @param gpuPlacement policy that selects GPUs for pods that do not name one
     * @param allocatable CPU and memory
     * @param runtime which pods it can start
     */
    record Sharing(NodeGpus gpus, Placement gpuPlacement, HostResources allocatable, NodeRuntime runtime)
            implements NodeFacts {
        /** A node whose container runtime does not report its handlers. */
        public Sharing(NodeGpus gpus, Placement gpuPlacement, HostResources allocatable) {
            this(gpus, gpuPlacement, allocatable, NodeRuntime.UNKNOWN);
        }

        /** The same, with GPUs that are shared by memory and cores, none of them cordoned. */
        public Sharing(Inventory inventory, Placement gpuPlacement, HostResources allocatable) {
            this(new NodeGpus(inventory, SharingMode.CORE_MEMORY, Set.of()), gpuPlacement, allocatable);
        }

        public Inventory inventory() {
            return gpus.inventory();
        }
    }

    /**
     * A node that takes no pods now, for example because it has no GPU inventory. The ledger keeps the claims on it.
     *
     * @param reason a few constant words
     * @param labeled whether the node has the {@link NodeLabel}
     * @param othersGpus whether its GPUs are certainly another owner's: pods there that request none see what that owner lets
     *     them see
     */
    record Unavailable(String reason, boolean labeled, boolean othersGpus) implements NodeFacts {
        /** A node whose GPUs are to be shared. */
        public Unavailable(String reason) {
            this(reason, true, false);
        }

        /** A node whose GPUs are not to be shared. */
        public static Unavailable notLabeled(NodeLabel label) {
            return new Unavailable("not labelled " + label, false, true);
        }
    }
}
