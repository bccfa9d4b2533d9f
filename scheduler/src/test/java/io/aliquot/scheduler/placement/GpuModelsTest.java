package io.aliquot.scheduler.placement;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.Gpu;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

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

    private static List<GpuCapacity> cards(String model, int memoryMiB) {
        var gpu = new Gpu(Gpus.uuid(1, 0), 0, model, memoryMiB, 0, -1, Gpu.HEALTHY, Gpu.SHIM, Map.of());
        return Gpus.nodeGpus(10, gpu).list();
    }
}
