package io.aliquot.scheduler.preemption;

import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.pending.Waker;

/** The preemption classes on the nodes of {@link ExtenderFixture}. */
public final class PreemptionFixture {
    final PreemptionReservations reservations;
    public final Waker waker;
    public final Evictions evictions;
    public final Preemptor preemptor;
    private final ExtenderFixture fixture;

    public PreemptionFixture(ExtenderFixture fixture) {
        this.fixture = fixture;
        this.reservations = new PreemptionReservations(
                fixture.ledger, fixture.pending, fixture.cluster, fixture.now::get, fixture::instant);
        this.waker = new Waker(
                fixture.ledger, fixture.events, fixture.pending, reservations, fixture.cluster, fixture.now::get);
        this.evictions = new Evictions(fixture.cluster, fixture.metrics, fixture.now::get);
        this.preemptor = new Preemptor(fixture.ledger, fixture.cluster, fixture.pending, fixture.budgets, reservations);
    }

    Evictor evictor() {
        return new Evictor(
                fixture.ledger,
                fixture.pending,
                fixture.cluster,
                fixture.budgets,
                reservations,
                waker,
                evictions,
                fixture.now::get);
    }
}
