package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.pending.Waker;

/** Preemption on the nodes of {@link ExtenderFixture}. */
public final class PreemptionFixture {
    final PreemptionReservations kept;
    public final Waker waker;
    public final Preemptor preempting;
    private final ExtenderFixture world;

    public PreemptionFixture(ExtenderFixture world) {
        this.world = world;
        this.kept = new PreemptionReservations(
                world.ledger, world.pending, world.cluster, world.now::get, world::instant);
        this.waker = new Waker(world.ledger, world.news, world.pending, kept, world.cluster, world.now::get);
        this.preempting = new Preemptor(world.ledger, world.cluster, world.pending, world.budgets, kept);
    }

    Evictor evictor() {
        return new Evictor(
                world.ledger,
                world.pending,
                world.cluster,
                world.budgets,
                kept,
                waker,
                world.metrics,
                world.now::get);
    }
}
