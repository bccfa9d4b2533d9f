package io.aliquot.scheduler.nodeagent;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.scheduler.cluster.NodeId;
import java.util.List;

/**
 * What a node's agent found on its node.
 *
 * @param gpus with their health
 * @param agentCertificate which certificate the agent serves; empty if it does not say
 * @param injectsByCdi whether containers get their GPUs by the CDI device that Allocate names, so that pods need no RuntimeClass
 */
public record NodeReport(NodeId node, List<Gpu> gpus, String agentCertificate, boolean injectsByCdi) {
    public NodeReport {
        gpus = List.copyOf(gpus);
    }

    public static NodeReport of(NodeId node, Inventory inventory) {
        return new NodeReport(node, inventory.gpus(), inventory.certificate(), inventory.injectsByCdi());
    }
}
