package io.aliquot.scheduler.nodeagent;

import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.Overuse;
import io.aliquot.scheduler.apiserver.NodeId;
import java.util.List;

/**
 * What a node's agent found on its node.
 *
 * @param gpus with their health
 * @param overuse containers that use more memory than their limit; only the agent says so, the ledger has to confirm that
 *     they are on this node
 */
public record NodeReport(NodeId node, List<Gpu> gpus, List<Overuse> overuse) {
    public NodeReport {
        gpus = List.copyOf(gpus);
        overuse = List.copyOf(overuse);
    }

    public static NodeReport of(NodeId node, Inventory inventory) {
        return new NodeReport(node, inventory.gpus(), inventory.overuse());
    }
}
