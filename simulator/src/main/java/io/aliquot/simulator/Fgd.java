package io.aliquot.simulator;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.scoring.ScoringPolicy;

/*
 * The policy of the paper that TypicalPods names, as the authors' simulator computes it: the score is a whole number
 * from 0 to 100, and the fullest node wins a tie. Both matter: with unrounded scores and random ties it allocates 6
 * points less.
 */
/** Fragmentation Gradient Descent: prefers the placement that increases fragmentation least. */
final class Fgd implements ScoringPolicy.Model {
    /** Per thousandth of a GPU; the sum over a node is less than 1. */
    private static final double TIE_BREAK = 1e-6;

    private final TypicalPods typicalPods;

    Fgd(TypicalPods typicalPods) {
        this.typicalPods = typicalPods;
    }

    @Override
    public double score(DemandVector demand, FreeCapacity before, FreeCapacity after) {
        double decrease = (typicalPods.fragmentation(before) - typicalPods.fragmentation(after)) / FreeCapacity.WHOLE;
        return Math.floor(100 / (1 + Math.exp(-decrease))) - TIE_BREAK * before.free();
    }
}
