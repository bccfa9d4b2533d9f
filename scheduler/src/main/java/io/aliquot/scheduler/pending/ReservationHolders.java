package io.aliquot.scheduler.pending;

import io.aliquot.scheduler.ledger.PodId;
import java.util.Collection;

/** The pods for which capacity is reserved while their victims terminate. */
@FunctionalInterface
public interface ReservationHolders {
    Collection<PodId> pods();
}
