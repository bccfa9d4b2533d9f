package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.ledger.NodeFacts.Unavailable;
import io.aliquot.scheduler.placement.GpuInfo;
import java.util.List;

/**
 * A snapshot of a node.
 *
 * @param agentReady whether its agent answers the kubelet
 * @param gpus free capacity of every GPU that it shares; empty for an unavailable node
 * @param holdings in no order
 */
public record NodeView(String name, NodeFacts facts, boolean agentReady, List<GpuInfo> gpus, List<Holding> holdings) {
    public NodeView {
        gpus = List.copyOf(gpus);
        holdings = List.copyOf(holdings);
    }

    /** Why the node takes no pods now; empty if it takes pods. */
    public String unavailableReason() {
        if (facts instanceof Unavailable unavailable) {
            return unavailable.reason();
        }
        return agentReady ? "" : NodeAccount.AGENT_NOT_READY.reason();
    }
}
