package io.aliquot.scheduler.metrics;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.pods.MemoryRequest.Mebibytes;
import io.aliquot.api.pods.MemoryRequest.Percentage;
import io.aliquot.api.pods.MemoryRequest.WholeCard;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerEvents;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuInfo;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import java.util.List;
import org.junit.jupiter.api.Test;

class ShareSizesTest {
    private final ShareSizes shapes = new ShareSizes();

    @Test
    void withoutShareSizesNoMemoryIsStranded() {
        assertThat(shapes.stranded(room(10, 30_000, 40, 1))).isZero();
    }

    @Test
    void freeMemorySmallerThanTheSmallestShareIsStranded() {
        shapes.add(new Mebibytes(8_000), 20);
        shapes.add(new Mebibytes(20_000), 10);
        assertThat(shapes.stranded(room(10, 32_000, 0, 1))).isZero();
        assertThat(shapes.stranded(room(10, 32_001, 0, 1))).isEqualTo(7_999);
    }

    @Test
    void allocatedCoresStrandMemory() {
        shapes.add(new Mebibytes(8_000), 20);
        shapes.add(new Mebibytes(20_000), 10);
        assertThat(shapes.stranded(room(10, 10_000, 80, 1))).isZero();
        assertThat(shapes.stranded(room(10, 10_000, 85, 1))).isZero();
        assertThat(shapes.stranded(room(10, 21_000, 85, 1))).isEqualTo(19_000);
        assertThat(shapes.stranded(room(10, 10_000, 95, 1))).isEqualTo(30_000);
        shapes.add(new Mebibytes(1_000), 0);
        assertThat(shapes.stranded(room(10, 10_000, 95, 1))).isZero();
    }

    @Test
    void aGpuWithoutFreeSlotsStrandsMemory() {
        shapes.add(new Mebibytes(1), 0);
        assertThat(shapes.stranded(room(2, 10_000, 0, 2))).isEqualTo(30_000);
    }

    @Test
    void aPercentageRefersToTheMemoryOfTheGpu() {
        shapes.add(new Percentage(50), 0);
        shapes.add(new Percentage(20), 30);
        assertThat(shapes.stranded(room(10, 20_000, 80, 1))).isZero();
        assertThat(shapes.stranded(room(10, 20_001, 80, 1))).isEqualTo(19_999);
        assertThat(shapes.stranded(room(10, 32_000, 70, 1))).isZero();
        assertThat(shapes.stranded(room(10, 32_001, 70, 1))).isEqualTo(7_999);
        shapes.add(new Mebibytes(19_999), 0);
        assertThat(shapes.stranded(room(10, 20_001, 80, 1))).isZero();
    }

    @Test
    void aWholeCardShareUsesOnlyAnEmptyGpu() {
        shapes.add(new WholeCard(), 0);
        assertThat(shapes.stranded(room(10, 0, 0, 0))).isZero();
        assertThat(shapes.stranded(room(10, 1, 0, 1))).isEqualTo(39_999);
    }

    @Test
    void withOverCommittedMemoryAVgpuIsLimitedToTheMemoryOfTheGpu() {
        shapes.add(new WholeCard(), 0);
        shapes.add(new Mebibytes(50_000), 0);
        var doubled = new Inventory(
                new VisibleDevices("{uuid}"), new Scaling(200), Scaling.ONE, 10, List.of(Gpus.gpu(1, 0, 40_000)));
        assertThat(shapes.stranded(room(doubled, 0, 0, 0))).isZero();
        assertThat(shapes.stranded(room(doubled, 20_000, 0, 1))).isEqualTo(60_000);
        shapes.add(new Mebibytes(40_000), 0);
        assertThat(shapes.stranded(room(doubled, 20_000, 0, 1))).isZero();
    }

    @Test
    void withScalingBelowOneAWholeCardIsTheScaledMemory() {
        shapes.add(new WholeCard(), 0);
        var half = new Inventory(
                new VisibleDevices("{uuid}"), new Scaling(50), Scaling.ONE, 10, List.of(Gpus.gpu(1, 0, 40_000)));
        assertThat(shapes.stranded(room(half, 0, 0, 0))).isZero();
    }

    private static GpuInfo room(int slots, int memory, int cores, int holders) {
        return room(Gpus.inventory(slots, Gpus.gpu(1, 0, 40_000)), memory, cores, holders);
    }

    private static GpuInfo room(Inventory inventory, int memory, int cores, int holders) {
        var ledger = new Ledger(System::nanoTime, new LedgerEvents());
        ledger.putNode("n1", new NodeFacts.Sharing(inventory, Placement.BINPACK, HostResources.NONE));
        for (int i = 0; i < holders; i++) {
            var amount = new GpuAmount(i == 0 ? memory - (holders - 1) : 1, i == 0 ? cores : 0, 1, false);
            ledger.observeBound(BoundPods.of(
                    new PodId("default", "p" + i, "uid-" + i), "n1", 1, BoundPods.main(Gpus.uuid(1, 0), amount)));
        }
        return ledger.view("n1").orElseThrow().gpus().get(0);
    }
}
