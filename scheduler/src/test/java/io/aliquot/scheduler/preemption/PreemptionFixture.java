package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.pending.Waker;

/** The preemption classes on the nodes of {@link ExtenderFixture}. */
public final class PreemptionFixture {
    final PreemptionReservations reservations;
    public final Waker waker;
    public final Preemptor preemptor;
    private final ExtenderFixture world;

    public PreemptionFixture(ExtenderFixture world) {
        this.world = world;
        this.reservations =
                new PreemptionReservations(world.ledger, world.pending, world.cluster, world.now::get, world::instant);
        this.waker = new Waker(world.ledger, world.events, world.pending, reservations, world.cluster, world.now::get);
        this.preemptor = new Preemptor(world.ledger, world.cluster, world.pending, world.budgets, reservations);
    }

    Evictor evictor() {
        return new Evictor(
                world.ledger,
                world.pending,
                world.cluster,
                world.budgets,
                reservations,
                waker,
                world.metrics,
                world.now::get);
    }
}
