package io.aliquot.scheduler.simulate;

import io.aliquot.scheduler.placement.Demand;
import io.aliquot.scheduler.placement.Room;

/** Any node that a pod fits on, and on it any GPU. */
final class AnyFit implements Policy<Integer> {
    @Override
    public boolean draws() {
        return true;
    }

    @Override
    public Integer weigh(Demand demand, Room room, int gpu) {
        return gpu;
    }

    @Override
    public double score(Integer gpu) {
        return 0;
    }
}
