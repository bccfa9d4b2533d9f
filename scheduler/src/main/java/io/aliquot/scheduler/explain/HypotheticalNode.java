package io.aliquot.scheduler.explain;

import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.placement.Feasibility.Fits;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuInfo;
import io.aliquot.scheduler.placement.GpuSelector;
import io.aliquot.scheduler.placement.PlacementPolicy;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.List;
import java.util.Set;

/** What a node's GPUs have free, in a hypothetical state: without some of its pods, or empty. */
record HypotheticalNode(String node, List<GpuInfo> gpus) {
    HypotheticalNode {
        gpus = List.copyOf(gpus);
    }

    static HypotheticalNode without(NodeView view, Set<String> uids) {
        return new HypotheticalNode(view.name(), view.gpusWithout(uids));
    }

    /** The node without any pod, as if all its GPUs were healthy and not cordoned. */
    static HypotheticalNode emptyAndOpen(NodeView view) {
        return new HypotheticalNode(
                view.name(),
                view.gpus().stream()
                        .map(gpu -> new GpuInfo(gpu.capacity().asSchedulable(), GpuAmount.NOTHING))
                        .toList());
    }

    boolean fits(PodGpuRequest request) {
        // Feasibility does not depend on the placement policy, so any policy gives the answer.
        return GpuSelector.feasible(request, gpus, PlacementPolicy.BINPACK) instanceof Fits;
    }
}
