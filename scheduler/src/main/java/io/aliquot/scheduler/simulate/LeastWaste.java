package io.aliquot.scheduler.simulate;

import io.aliquot.scheduler.placement.Demand;
import io.aliquot.scheduler.placement.Fragmentation;
import io.aliquot.scheduler.placement.Fragmentation.Place;
import io.aliquot.scheduler.placement.Room;

/** The scheduler's own policy {@code fragmentation}. */
final class LeastWaste implements Policy<Place> {
    private final Fragmentation fragmentation = new Fragmentation();

    @Override
    public void entered(Room room) {
        fragmentation.add(room);
    }

    @Override
    public void left(Room room) {
        fragmentation.remove(room);
    }

    @Override
    public void arrives(Demand demand) {
        fragmentation.see(demand);
    }

    @Override
    public int edition() {
        return fragmentation.edition();
    }

    @Override
    public Place weigh(Demand demand, Room room, int gpu) {
        return fragmentation.weigh(demand, room, gpu);
    }

    @Override
    public double score(Place place) {
        return -fragmentation.cost(place);
    }
}
