package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.GpuAmount;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Reads a ledger's views and recounts its sums, for tests. */
public final class LedgerInvariants {
    private LedgerInvariants() {}

    public static List<NodeView> views(Ledger ledger) {
        return ledger.nodeNames().stream()
                .flatMap(name -> ledger.view(name).stream())
                .toList();
    }

    /** The allocated amounts of each shared GPU, by UUID. */
    public static Map<String, GpuAmount> taken(Ledger ledger) {
        return views(ledger).stream()
                .flatMap(view -> view.gpus().stream())
                .collect(Collectors.toMap(gpu -> gpu.gpu().uuid(), gpu -> gpu.allocated()));
    }

    /** Holdings that the watch has not reported. */
    public static List<Holding> unconfirmed(Ledger ledger) {
        return views(ledger).stream()
                .flatMap(view -> view.holdings().stream())
                .filter(holding -> holding.state() != Holding.State.HELD)
                .toList();
    }

    /** Fails if a sum that a node's account keeps differs from what its claims add up to. */
    public static void recount(Ledger ledger) {
        ledger.nodeNames().stream()
                .flatMap(name -> ledger.account(name).stream())
                .forEach(account -> ((NodeAccount) account).recount());
    }
}
