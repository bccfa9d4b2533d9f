package io.aliquot.scheduler.placement;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.NodeSharing;
import io.aliquot.api.nodes.NodeSharing.OfGpu;
import io.aliquot.api.nodes.SharingMode;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class GpuModelsTest {
    private static final HostResources HOST = new HostResources(1000, 1000);
    private static final PodGpuRequest HALF = Gpus.request("APP:main: gpumem-percentage=50");

    private final GpuModels models = new GpuModels();

    /** Regression: each name that a node's inventory ever had was kept, so a node could fill the memory. */
    @Test
    void aModelThatNoNodeHasIsForgotten() {
        List<GpuCapacity> large = cards("large", 80_000);
        FreeCapacity.Shape first = models.shape(large, HOST);
        FreeCapacity.Shape second = models.shape(large, HOST);
        for (int i = 0; i < 1000; i++) {
            List<GpuCapacity> cards = cards("model " + i, 40_000);
            FreeCapacity.Shape shape = models.shape(cards, HOST);
            assertThat(shape.model()).isEqualTo(1);
            models.release(cards, shape);
        }
        assertThat(models.size()).isEqualTo(1);
        models.release(large, first);
        assertThat(models.demand(HALF).gpuMiB()).isEqualTo(40_000);
        models.release(large, second);
        assertThat(models.size()).isZero();
        assertThat(models.demand(HALF).gpuMiB()).isLessThan(40_000);
    }

    @Test
    void atMost63ModelsAreKeptAndTheFurtherOnesShareANumber() {
        for (int i = 0; i < 200; i++) {
            List<GpuCapacity> cards = cards("model " + i, 40_000);
            FreeCapacity.Shape shape = models.shape(cards, HOST);
            assertThat(shape.model()).isEqualTo(Math.min(i, 63));
            if (i > 100) {
                models.release(cards, shape);
            }
        }
        assertThat(models.size()).isEqualTo(63);
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', textBlock = """
            APP:a: gpumem=300 gpucores=10                                                     | 1 | false | 300 | 10
            APP:a: gpumem-percentage=50                                                       | 1 | false | 500 | 0
            APP:a: gpu=2 gpumem=300 gpucores=10                                               | 2 | false | 300 | 10
            APP:a: gpu=2 gpumem=300 gpucores=10, APP:b: gpumem=101 gpucores=5                 | 2 | false | 351 | 13
            INIT:i: gpumem=900, SIDECAR:s: gpumem=100 gpucores=20, APP:a: gpumem=300          | 1 | false | 900 | 20
            APP:a: gpu=2                                                                      | 2 | true  | 0   | 0
            INIT:i: gpu=3, APP:a: gpumem=300                                                  | 3 | true  | 0   | 0
            """)
    void aDemandIsWhatThePodsContainersHoldAtOnceOnAsManyGpusAsOneContainerNeeds(
            String containers, int gpus, boolean whole, int gpuMiB, int gpuCores) {
        PodGpuRequest pod = Gpus.request(containers.split(", ", -1));
        assertThat(models.demand(pod, 1000))
                .isEqualTo(new DemandVector(0, 0, gpus, whole, gpuMiB, gpuCores, DemandVector.ANY));
    }

    @Test
    void aDemandRoundsHostMemoryUp() {
        PodGpuRequest pod = PodGpuRequest.of(List.of(), Map.of(), false);
        assertThat(models.demand(pod.withHostRequests(new HostResources(1500, (3 << 20) + 1))))
                .isEqualTo(new DemandVector(1500, 4, 0, false, 0, 0, DemandVector.ANY));
        assertThat(models.demand(pod.withHostRequests(new HostResources(0, 3 << 20))))
                .isEqualTo(new DemandVector(0, 3, 0, false, 0, 0, DemandVector.ANY));
    }

    @Test
    void aDemandNamesTheModelsThatThePodTakes() {
        models.shape(cards("NVIDIA L4", 24_000), HOST);
        models.shape(cards("NVIDIA H100", 80_000), HOST);
        models.shape(
                new NodeGpus(Gpus.inventory(10, card(0, "NVIDIA H100", 80_000)), SharingMode.EXCLUSIVE, Set.of())
                        .list(),
                HOST);
        assertThat(models.demand(Gpus.request("APP:main: gpumem=1")).models())
                .as("no share of a whole card")
                .isEqualTo(~0b100L);
        assertThat(models.demand(Gpus.request("APP:main: gpu=1")).models()).isEqualTo(DemandVector.ANY);
        DemandVector choosing =
                models.demand(Gpus.request(Map.of("aliquot.io/use-gpu-model", "L4"), "APP:main: gpumem-percentage=50"));
        assertThat(choosing.models()).isEqualTo(~0b110L);
        assertThat(choosing.gpuMiB()).as("of the largest GPU that it takes").isEqualTo(12_000);
    }

    @Test
    void onANodeWithDifferentGpusAllCountAsTheLargest() {
        List<GpuCapacity> mixed = Gpus.nodeGpus(
                        10, card(0, "small", 20_000), card(1, "large", 40_000), card(2, "large", 40_000))
                .list();
        assertThat(models.shape(mixed, new HostResources(1500, (4 << 20) - 1)))
                .isEqualTo(new FreeCapacity.Shape(1500, 3, 3, 40_000, 100, 0));
        models.release(mixed, models.shape(mixed, HOST));
        assertThat(models.demand(HALF).gpuMiB()).isEqualTo(20_000);
        assertThat(models.shape(List.of(), HOST)).isEqualTo(new FreeCapacity.Shape(1000, 0, 0, 1, 0, 0));
        models.release(List.of(), models.shape(List.of(), HOST));
        assertThat(models.size()).isEqualTo(1);
    }

    @Test
    void aPercentageIsOfTheLargestGpuOfAModel() {
        models.shape(cards("model", 40_000), HOST);
        models.shape(cards("model", 80_000), HOST);
        models.shape(cards("model", 60_000), HOST);
        assertThat(models.size()).isEqualTo(1);
        assertThat(models.demand(HALF).gpuMiB()).isEqualTo(40_000);
    }

    @Test
    void ofEquallyLargeModelsTheFirstCounts() {
        models.shape(cards("second", 40_000), HOST);
        models.shape(cards("first", 40_000), HOST);
        List<GpuCapacity> both = Gpus.nodeGpus(10, card(0, "first", 40_000), card(1, "second", 40_000))
                .list();
        assertThat(models.shape(both, HOST).model()).isEqualTo(1);
    }

    @Test
    void aNodeWithWholeCardsAndSharedGpusCountsAsItsSharedOnes() {
        Gpu[] cardFirst = {card(0, "card", 80_000), card(1, "large", 40_000)};
        Gpu[] cardLast = {card(0, "large", 40_000), card(1, "card", 80_000)};
        for (Gpu[] gpus : List.of(cardFirst, cardLast)) {
            String card = gpus == cardFirst ? "0" : "1";
            var sharing = new NodeSharing(SharingMode.MEMORY, Map.of(card, new OfGpu(SharingMode.EXCLUSIVE, 1)));
            List<GpuCapacity> node = new NodeGpus(Gpus.inventory(10, gpus), sharing, Set.of()).list();
            assertThat(models.shape(node, HOST))
                    .isEqualTo(new FreeCapacity.Shape(1000, 0, 2, 40_000, FreeCapacity.UNCOUNTED, 0));
        }
    }

    private static List<GpuCapacity> cards(String model, int memoryMiB) {
        return Gpus.nodeGpus(10, card(0, model, memoryMiB)).list();
    }

    private static Gpu card(int index, String model, int memoryMiB) {
        return new Gpu(Gpus.uuid(1, index), index, model, memoryMiB, 0, -1, Gpu.HEALTHY, Gpu.SHIM, Map.of());
    }
}
