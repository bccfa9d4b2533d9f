package io.aliquot.scheduler.extender;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Placement;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.Amount;
import io.aliquot.scheduler.placement.GpuRoom;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostLoad;
import org.junit.jupiter.api.Test;

class ShapesTest {
    private final Shapes shapes = new Shapes();

    @Test
    void withoutAnyShapeNothingIsStranded() {
        assertThat(shapes.stranded(room(10, 30_000, 40, 1))).isZero();
    }

    @Test
    void whatIsLessThanTheSmallestShareIsStranded() {
        shapes.add(8_000, 20);
        shapes.add(20_000, 10);
        assertThat(shapes.stranded(room(10, 32_000, 0, 1))).isZero();
        assertThat(shapes.stranded(room(10, 32_001, 0, 1))).isEqualTo(7_999);
    }

    @Test
    void coresThatAreTakenStrandMemory() {
        shapes.add(8_000, 20);
        shapes.add(20_000, 10);
        assertThat(shapes.stranded(room(10, 10_000, 80, 1))).isZero();
        assertThat(shapes.stranded(room(10, 10_000, 85, 1))).isZero();
        assertThat(shapes.stranded(room(10, 21_000, 85, 1))).isEqualTo(19_000);
        assertThat(shapes.stranded(room(10, 10_000, 95, 1))).isEqualTo(30_000);
        shapes.add(1_000, 0);
        assertThat(shapes.stranded(room(10, 10_000, 95, 1))).isZero();
    }

    @Test
    void slotsThatAreTakenAndGpusThatAreClosedStrandMemory() {
        shapes.add(1, 0);
        assertThat(shapes.stranded(room(2, 10_000, 0, 2))).isEqualTo(30_000);
    }

    private static GpuRoom room(int slots, int memory, int cores, int holders) {
        var ledger = new Ledger(System::nanoTime, new LedgerNews());
        ledger.putNode(
                "n1",
                new NodeFacts.Sharing(Gpus.inventory(slots, Gpus.gpu(1, 0, 40_000)), Placement.BINPACK, HostLoad.NONE));
        for (int i = 0; i < holders; i++) {
            var amount = new Amount(i == 0 ? memory - (holders - 1) : 1, i == 0 ? cores : 0, 1, false);
            ledger.hold(BoundPods.of(
                    new PodId("default", "p" + i, "uid-" + i), "n1", 1, BoundPods.main(Gpus.uuid(1, 0), amount)));
        }
        return ledger.view("n1").orElseThrow().rooms().get(0);
    }
}
