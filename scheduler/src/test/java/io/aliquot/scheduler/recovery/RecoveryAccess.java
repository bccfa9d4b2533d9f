package io.aliquot.scheduler.recovery;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerEvents;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;

/** Gives tests of other packages access to the auditor. */
public final class RecoveryAccess {
    private RecoveryAccess() {}

    public static Runnable audit(Ledger ledger, LedgerEvents events, Cluster cluster) {
        return new Auditor(ledger, events, cluster, new SimpleMeterRegistry())::audit;
    }
}
