package io.aliquot.scheduler.simulation;

import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.GpuModels;
import io.aliquot.scheduler.scoring.ScoringPolicy;
import io.aliquot.scheduler.scoring.fragmentation.Fragmentation;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The nodes of a cluster, and engines that place pods on them. Demands and capacities of different clusters do not
 * compare: each cluster numbers the models of its GPUs.
 */
public final class SimulatedCluster {
    private final GpuModels models = new GpuModels();
    private final Map<String, FreeCapacity.Shape> shapes = new LinkedHashMap<>();
    private final List<SimulatedNode> nodes;

    public SimulatedCluster(List<SimulatedNode> nodes) {
        this.nodes = List.copyOf(nodes);
        for (SimulatedNode node : nodes) {
            shapes.put(node.name(), models.shape(node.facts.gpus().list(), node.facts.allocatable()));
        }
    }

    /** What a pod requests; a part of a GPU is measured by the largest model that the pod accepts. */
    public DemandVector demand(PodRequest pod) {
        return models.demand(pod.request());
    }

    /** An engine with empty nodes and one of the scheduler's policies. */
    public PlacementEngine engine(Placement policy) {
        return new PlacementEngine(nodes, shapes, policy, new Fragmentation());
    }

    /** An engine with empty nodes that places pods by another score, which learns nothing. */
    public PlacementEngine engine(ScoringPolicy.Model score) {
        return new PlacementEngine(nodes, shapes, Placement.FRAGMENTATION, (pods, capacities) -> score);
    }
}
