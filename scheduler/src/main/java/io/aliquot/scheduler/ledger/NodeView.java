package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.ledger.NodeFacts.LeftOut;
import io.aliquot.scheduler.placement.GpuFreeCapacity;
import java.util.List;

/**
 * A snapshot of a node.
 *
 * @param agentReady whether its agent answers the kubelet
 * @param gpus free capacity of every GPU that it shares; empty for a node left out
 * @param holdings in no order
 */
public record NodeView(
        String name, NodeFacts facts, boolean agentReady, List<GpuFreeCapacity> gpus, List<Holding> holdings) {
    public NodeView {
        gpus = List.copyOf(gpus);
        holdings = List.copyOf(holdings);
    }

    /** Why the node takes no pods now; empty if it takes pods. */
    public String leftOut() {
        if (facts instanceof LeftOut leftOut) {
            return leftOut.reason();
        }
        return agentReady ? "" : NodeAccount.AGENT_NOT_READY.reason();
    }
}
