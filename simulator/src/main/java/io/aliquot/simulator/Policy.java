package io.aliquot.simulator;

import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.simulation.PlacementEngine;
import io.aliquot.scheduler.simulation.SimulatedCluster;
import java.util.List;
import java.util.Locale;

/** A placement policy, by the name that users write. */
enum Policy {
    /** Any node, any GPU. */
    RANDOM,
    /** The node with the least CPU and GPU left. */
    BEST_FIT,
    /** The scheduler's policy of this name. */
    BINPACK,
    /** The scheduler's policy of this name. */
    SPREAD,
    /** Fragmentation Gradient Descent. */
    FGD,
    /** The scheduler's policy of this name. */
    FRAGMENTATION;

    /**
     * An engine with empty nodes for one replay.
     *
     * @param workload that pods are drawn from; FGD knows it in advance
     */
    PlacementEngine engine(SimulatedCluster cluster, List<DemandVector> workload) {
        return switch (this) {
            // RANDOM draws among the nodes and GPUs that the engine finds feasible.
            case RANDOM, BINPACK -> cluster.engine(Placement.BINPACK);
            case SPREAD -> cluster.engine(Placement.SPREAD);
            case BEST_FIT -> cluster.engine(new BestFit());
            case FGD -> cluster.engine(new Fgd(TypicalPods.of(workload)));
            case FRAGMENTATION -> cluster.engine(Placement.FRAGMENTATION);
        };
    }

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT).replace("_", "-");
    }
}
