package io.aliquot.simulator;

import io.aliquot.scheduler.simulation.FreeResources;
import io.aliquot.scheduler.simulation.PodDemand;
import io.aliquot.scheduler.simulation.Scorer;

/*
 * The policy of the paper that TypicalPods names, as the authors' simulator computes it: the score is a whole number
 * from 0 to 100, and the fullest node wins a tie. Both matter: with unrounded scores and random ties it allocates 6
 * points less.
 */
/** Fragmentation Gradient Descent: prefers the placement that increases fragmentation least. */
final class Fgd implements Scorer {
    /** Per thousandth of a GPU; the sum over a node is less than 1. */
    private static final double TIE_BREAK = 1e-6;

    private final TypicalPods typicalPods;

    Fgd(TypicalPods typicalPods) {
        this.typicalPods = typicalPods;
    }

    @Override
    public double score(PodDemand demand, FreeResources before, FreeResources after) {
        double decrease = (typicalPods.fragmentation(before) - typicalPods.fragmentation(after)) / FreeResources.WHOLE;
        return Math.floor(100 / (1 + Math.exp(-decrease))) - TIE_BREAK * before.freeGpu();
    }
}
