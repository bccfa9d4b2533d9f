package io.aliquot.scheduler.inspection;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.inspection.Stock.Held;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerListener;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.Amount;
import io.aliquot.scheduler.placement.Gpus;
import org.junit.jupiter.api.Test;

class StockTest {
    private final Ledger ledger = new Ledger(() -> 0, new LedgerListener() {
        @Override
        public void roomFreed(String node) {}

        @Override
        public void oversold(String node, String gpu) {}
    });
    private final Stock stock = new Stock(ledger);

    /** The ledger has them in no order, so there are some of each. */
    @Test
    void aPodMadeAnewUnderTheNameOfOneDeletedByForceIsTheOneThatIsMeant() {
        for (int i = 0; i < 8; i++) {
            String name = "db-" + i;
            ledger.hold(pod(name, "before"));
            ledger.vanish(name + "-before");
            ledger.suppose(pod(name, "read"));
            assertThat(stock.pod("default", name)).map(StockTest::uid).hasValue(name + "-read");
            ledger.hold(pod(name, "told"));
            assertThat(stock.pod("default", name)).map(StockTest::uid).hasValue(name + "-told");
        }
        assertThat(stock.pods("default", "")).hasSize(24);
    }

    private static String uid(Held held) {
        return held.holding().pod().uid();
    }

    private static BoundPod pod(String name, String which) {
        return BoundPods.of(
                new PodId("default", name, name + "-" + which),
                "n1",
                1,
                BoundPods.main(Gpus.uuid(1, 0), new Amount(100, 0, 1, false)));
    }
}
