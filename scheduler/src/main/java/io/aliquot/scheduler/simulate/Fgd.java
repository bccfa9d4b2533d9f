package io.aliquot.scheduler.simulate;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.scoring.ScoringPolicy;

/*
 * The policy of the paper named in TypicalPods, as its simulator has it: the score is a whole number from 0 to 100, and
 * of equal ones the fullest node wins. Both matter: unrounded, and with ties drawn, it allocates 6 points less.
 */
/** Fragmentation Gradient Descent: the place where fragmentation grows least. */
final class Fgd implements ScoringPolicy<Double> {
    /** Of a thousandth of a GPU: never as much as a whole number. */
    private static final double TIE = 1e-6;

    private final TypicalPods typical;

    Fgd(TypicalPods typical) {
        this.typical = typical;
    }

    @Override
    public Double evaluate(DemandVector demand, FreeCapacity before, FreeCapacity after) {
        double less = (typical.fragmentation(before) - typical.fragmentation(after)) / FreeCapacity.WHOLE;
        return Math.floor(100 / (1 + Math.exp(-less))) - TIE * before.free();
    }

    @Override
    public double score(Double place) {
        return place;
    }
}
