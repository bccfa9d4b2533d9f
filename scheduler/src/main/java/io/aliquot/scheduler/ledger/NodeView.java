package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.ledger.NodeFacts.LeftOut;
import io.aliquot.scheduler.placement.GpuFreeCapacity;
import java.util.List;

/**
 * A node at one instant.
 *
 * @param served whether its agent answers the kubelet
 * @param gpus every GPU that it shares, and what is taken of it by all the holdings; empty for a node left out
 * @param holdings in no order
 */
public record NodeView(
        String name, NodeFacts facts, boolean served, List<GpuFreeCapacity> gpus, List<Holding> holdings) {
    public NodeView {
        gpus = List.copyOf(gpus);
        holdings = List.copyOf(holdings);
    }

    /** Why it takes no pod now, whatever it asks for; empty where it takes some. */
    public String leftOut() {
        if (facts instanceof LeftOut leftOut) {
            return leftOut.reason();
        }
        return served ? "" : NodeAccount.UNSERVED.reason();
    }
}
