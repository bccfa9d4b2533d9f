package io.aliquot.scheduler.placement;

import static io.aliquot.scheduler.placement.Gpus.gpu;
import static io.aliquot.scheduler.placement.Gpus.gpuWith;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.nodes.SharingMode;
import io.aliquot.scheduler.placement.FreeCapacity.Shape;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class FreeCapacityTest {
    private static final Shape SHAPE = new Shape(8_000, 16_000, 3, 1000, 100, 5);
    private static final HostResources HOST = new HostResources(8_000, 16_000L << 20);

    /** Three GPUs, of which the fullest has 400 MiB and 70 % of its cores left; 7 CPUs and 15,000 MiB. */
    private final FreeCapacity node =
            FreeCapacity.of(SHAPE).with(new DemandVector(1_000, 1_000, 1, false, 600, 30, DemandVector.ANY), 0);

    @Test
    void theFullestGpuIsTheFirst() {
        assertThat(node.gpus()).isEqualTo(3);
        assertThat(node.cpuMillis()).isEqualTo(7_000);
        assertThat(node.memoryMiB()).isEqualTo(15_000);
        assertThat(node).hasToString(SHAPE + " with 7000 mCPU, 15000 MiB and GPUs 400/70 1000/100 1000/100 left");
    }

    @Test
    void thePartOfAGpuIsOfMemoryOrOfCores() {
        assertThat(SHAPE.part(250, 10)).isEqualTo(250);
        assertThat(SHAPE.part(250, 30)).as("the more requested of both").isEqualTo(300);
        assertThat(node.part(0)).as("the less free of both").isEqualTo(400);
        assertThat(nodeOf(gpuWith(gpu(1, 0, 1000), 10, 100, 80, 1)).part(0)).isEqualTo(200);
        assertThat(node.free()).isEqualTo(2_400);
        assertThat(SHAPE.takenBy(demand(2, 250, 30))).isEqualTo(600);
        assertThat(SHAPE.takenBy(whole(2))).isEqualTo(2_000);
        var withoutCores = new Shape(0, 0, 1, 1000, 0, 0);
        assertThat(withoutCores.part(250, 30)).isEqualTo(250);
        assertThat(FreeCapacity.of(withoutCores).part(0)).isEqualTo(1_000);
    }

    @ParameterizedTest
    @CsvSource({
        "7000, 15000, 0, false,    0,   0, true",
        "7001,     0, 0, false,    0,   0, false",
        "   0, 15001, 0, false,    0,   0, false",
        "   0,     0, 3, false,  400,  70, true",
        "   0,     0, 3, false,  401,   0, false",
        "   0,     0, 3, false,    0,  71, false",
        "   0,     0, 2, false, 1000, 100, true",
        "   0,     0, 4, false,    1,   0, false",
        "   0,     0, 2, true,     0,   0, true",
        "   0,     0, 3, true,     0,   0, false",
    })
    void aDemandFitsIfTheHostAndEnoughGpusHoldIt(
            int cpuMillis, int memoryMiB, int gpus, boolean whole, int gpuMiB, int gpuCores, boolean fits) {
        var demand = new DemandVector(cpuMillis, memoryMiB, gpus, whole, gpuMiB, gpuCores, DemandVector.ANY);
        assertThat(node.fits(demand)).isEqualTo(fits);
    }

    @Test
    void theModelMattersToADemandForGpusOnly() {
        assertThat(node.fits(new DemandVector(0, 0, 1, true, 0, 0, 1 << 5))).isTrue();
        assertThat(node.fits(new DemandVector(0, 0, 1, true, 0, 0, ~(1 << 5)))).isFalse();
        assertThat(node.fits(new DemandVector(0, 0, 0, false, 0, 0, 0))).isTrue();
    }

    @ParameterizedTest
    @CsvSource({
        "   0,    0, 1, false, 400, 10, 5",
        "   0,    0, 1, false, 100, 50, 5",
        "   0,    0, 1, false,   0, 30, 8",
        "   0,    0, 1, false, 200,  0, 12",
        "   0,    0, 2, false, 400, 10, 2",
        "   0,    0, 1, true,    0,  0, 2",
        "2500,    0, 1, false, 200,  0, 2",
        "   0, 6000, 1, false, 200,  0, 2",
        "7001,    0, 1, false, 200,  0, 0",
    })
    void theScarcestResourceBoundsHowManyPodsFit(
            int cpuMillis, int memoryMiB, int gpus, boolean whole, int gpuMiB, int gpuCores, int slots) {
        var demand = new DemandVector(cpuMillis, memoryMiB, gpus, whole, gpuMiB, gpuCores, DemandVector.ANY);
        assertThat(node.slots(demand)).isEqualTo(slots);
    }

    @Test
    void aPodTakesTheNextGpusThatHoldIt() {
        assertThat(node.with(demand(2, 500, 20), 0))
                .hasToString(SHAPE + " with 7000 mCPU, 15000 MiB and GPUs 400/70 500/80 500/80 left");
        assertThat(node.with(demand(2, 100, 0), 0))
                .hasToString(SHAPE + " with 7000 mCPU, 15000 MiB and GPUs 300/70 900/100 1000/100 left");
        assertThat(node.with(whole(1), 1))
                .hasToString(SHAPE + " with 7000 mCPU, 15000 MiB and GPUs 0/0 400/70 1000/100 left");
    }

    @Test
    void nodesAreEqualWhateverTheOrderOfTheirGpusIs() {
        GpuInfo half = gpuWith(gpu(1, 0, 1000), 10, 600, 30, 1);
        GpuInfo empty = gpuWith(gpu(1, 1, 1000), 10, 0, 0, 0);
        assertThat(nodeOf(half, empty)).isEqualTo(nodeOf(empty, half)).hasSameHashCodeAs(nodeOf(empty, half));
        for (FreeCapacity other : List.of(
                nodeOf(empty, empty),
                FreeCapacity.of(SHAPE, HOST.minus(new HostResources(1, 0)), List.of(half, empty)),
                FreeCapacity.of(SHAPE, HOST.minus(new HostResources(0, 1 << 20)), List.of(half, empty)),
                FreeCapacity.of(new Shape(8_000, 16_000, 3, 1000, 100, 6), HOST, List.of(half, empty)))) {
            assertThat(nodeOf(half, empty)).isNotEqualTo(other).doesNotHaveSameHashCodeAs(other);
        }
    }

    @Test
    void ofAGpuThatTakesNoFurtherVgpuNothingIsFree() {
        assertThat(nodeOf(gpuWith(gpu(1, 0, 1000), 2, 100, 0, 1)).gpuMiB(0)).isEqualTo(900);
        assertThat(nodeOf(gpuWith(gpu(1, 0, 1000), 2, 100, 0, 2)).gpuMiB(0))
                .as("no slot")
                .isZero();
        assertThat(nodeOf(gpuWith(gpu(1, 0, 1000, false), 2, 0, 0, 0)).gpuMiB(0))
                .as("unhealthy")
                .isZero();
        var card = new GpuInfo(Gpus.nodeGpus(2, gpu(1, 0, 1000)).list().get(0), new GpuAmount(500, 0, 1, true));
        assertThat(nodeOf(card).gpuMiB(0)).as("a whole card").isZero();
    }

    @Test
    void nothingIsFreeOfWhatIsOverallocated() {
        assertThat(FreeCapacity.of(
                        SHAPE, new HostResources(-1, -1), List.of(gpuWith(gpu(1, 0, 1000), 10, 1001, 101, 1))))
                .hasToString(SHAPE + " with 0 mCPU, 0 MiB and GPUs 0/0 left");
    }

    @Test
    void whereCoresAreNotSharedTheyAreFreeWhileMemoryIs() {
        GpuCapacity capacity = new NodeGpus(Gpus.inventory(10, gpu(1, 0, 1000)), SharingMode.MEMORY, Set.of())
                .list()
                .get(0);
        Shape shape = new GpuModels().shape(List.of(capacity), HOST);
        GpuInfo shared = new GpuInfo(capacity, new GpuAmount(900, 0, 1, false));
        GpuInfo full = new GpuInfo(capacity, new GpuAmount(1000, 0, 1, false));
        assertThat(FreeCapacity.of(shape, HOST, List.of(shared)).fits(demand(1, 100, 100)))
                .isTrue();
        assertThat(FreeCapacity.of(shape, HOST, List.of(full)).free()).isZero();
    }

    @ParameterizedTest
    @CsvSource({
        "-1, 0, 0, 0, 0",
        "0, -1, 0, 0, 0",
        "0, 0, -1, 0, 0",
        "0, 0, 0, -1, 0",
        "0, 0, 0, 0, -1",
        "0, 0, 1, 0, 0"
    })
    void anImpossibleDemandIsRefused(int cpuMillis, int memoryMiB, int gpus, int gpuMiB, int gpuCores) {
        assertThatThrownBy(
                        () -> new DemandVector(cpuMillis, memoryMiB, gpus, false, gpuMiB, gpuCores, DemandVector.ANY))
                .isInstanceOf(IllegalArgumentException.class);
    }

    private static FreeCapacity nodeOf(GpuInfo... gpus) {
        return FreeCapacity.of(SHAPE, HOST, List.of(gpus));
    }

    private static DemandVector demand(int gpus, int gpuMiB, int gpuCores) {
        return new DemandVector(0, 0, gpus, false, gpuMiB, gpuCores, DemandVector.ANY);
    }

    private static DemandVector whole(int gpus) {
        return new DemandVector(0, 0, gpus, true, 0, 0, DemandVector.ANY);
    }
}
