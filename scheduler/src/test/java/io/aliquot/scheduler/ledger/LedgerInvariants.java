package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.GpuAmount;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Reads the views of a ledger for tests. */
public final class LedgerInvariants {
    private LedgerInvariants() {}

    public static List<NodeView> views(Ledger ledger) {
        return ledger.nodeNames().stream()
                .flatMap(name -> ledger.view(name).stream())
                .toList();
    }

    /** The allocated amount of each shared GPU, by UUID. */
    public static Map<String, GpuAmount> taken(Ledger ledger) {
        return views(ledger).stream()
                .flatMap(view -> view.gpus().stream())
                .collect(Collectors.toMap(room -> room.gpu().uuid(), room -> room.allocated()));
    }

    /** The holdings that no watch event has confirmed. */
    public static List<Holding> unconfirmed(Ledger ledger) {
        return views(ledger).stream()
                .flatMap(view -> view.holdings().stream())
                .filter(holding -> holding.state() != Holding.State.HELD)
                .toList();
    }
}
