package io.aliquot.scheduler.simulate;

import io.aliquot.scheduler.placement.Demand;
import io.aliquot.scheduler.placement.Room;

/*
 * The policy of the paper named in TypicalPods, as its simulator has it: the score is a whole number from 0 to 100, and
 * of equal ones the fullest node wins. Both matter: unrounded, and with ties drawn, it allocates 6 points less.
 */
/** Fragmentation Gradient Descent: the place where fragmentation grows least. */
final class Fgd implements Policy<Double> {
    private final TypicalPods typical;

    Fgd(TypicalPods typical) {
        this.typical = typical;
    }

    @Override
    public Double weigh(Demand demand, Room room, int gpu) {
        Room after = room.with(demand, gpu);
        double less = (typical.fragmentation(room) - typical.fragmentation(after)) / Room.WHOLE;
        return Math.floor(100 / (1 + Math.exp(-less)));
    }

    @Override
    public double score(Double place) {
        return place;
    }
}
