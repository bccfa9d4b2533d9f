package io.aliquot.scheduler.nodeagent;

import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.UnchargedUse;
import io.aliquot.scheduler.apiserver.NodeId;
import java.util.List;

/**
 * What a node's agent found on its node.
 *
 * @param gpus with their health
 * @param uncharged containers that use memory which the shim has not charged; only the agent says so, the ledger has to
 *     confirm that they are on this node
 */
public record NodeReport(NodeId node, List<Gpu> gpus, List<UnchargedUse> uncharged) {
    public NodeReport {
        gpus = List.copyOf(gpus);
        uncharged = List.copyOf(uncharged);
    }

    public static NodeReport of(NodeId node, Inventory inventory) {
        return new NodeReport(node, inventory.gpus(), inventory.uncharged());
    }
}
