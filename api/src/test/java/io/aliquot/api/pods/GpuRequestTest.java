package io.aliquot.api.pods;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.nodes.Gpu;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class GpuRequestTest {
    @Test
    void instancesAreWholeAndOfOneProfile() {
        var two = new GpuRequest(2, new MemoryRequest.WholeCard(), 0, true, "1g.10gb.me");
        assertThat(GpuRequest.parse(Map.of("mig.aliquot.io/1g.10gb.me", "2"))).contains(two);
        assertThat(GpuRequest.parse(Map.of("nvidia.com/mig-1g.10gb.me", "2"))).isEmpty(); // of NVIDIA's device plugin
        assertThat(GpuRequest.parse(Map.of("mig.aliquot.io/1g.10gb.me", "2", "aliquot.io/vgpu", "2")))
                .contains(two);
        assertThat(GpuRequest.parse(Map.of("mig.aliquot.io/1g.10gb", "0"))).isEmpty();
        assertThatThrownBy(() -> GpuRequest.parse(Map.of("mig.aliquot.io/1g.10gb", "1", "nvidia.com/gpumem", "5000")))
                .hasMessageContaining("an instance of MIG is always whole");
        assertThatThrownBy(() -> GpuRequest.parse(Map.of("mig.aliquot.io/1g.10gb", "1", "aliquot.io/vgpu", "2")))
                .hasMessageContaining("remove aliquot.io/vgpu: each of mig.aliquot.io/1g.10gb: 1 is one vGPU");
        assertThatThrownBy(() -> GpuRequest.parse(Map.of("mig.aliquot.io/1g.10gb", "1", "mig.aliquot.io/2g.20gb", "1")))
                .hasMessageContaining("instances of one MIG profile");
    }

    @Test
    void parsesMemoryAndCores() {
        assertThat(GpuRequest.parse(
                        Map.of("aliquot.io/vgpu", "2", "nvidia.com/gpumem", "3k", "nvidia.com/gpucores", "30")))
                .contains(new GpuRequest(2, new MemoryRequest.Mebibytes(3000), 30, false));
    }

    @Test
    void memoryOrCoresAloneMeanOneVgpu() {
        assertThat(GpuRequest.parse(Map.of("nvidia.com/gpumem", "3000")))
                .contains(new GpuRequest(1, new MemoryRequest.Mebibytes(3000), 0, false));
        assertThat(GpuRequest.parse(Map.of("nvidia.com/gpumem-percentage", "50")))
                .contains(new GpuRequest(1, new MemoryRequest.Percentage(50), 0, false));
        assertThat(GpuRequest.parse(Map.of("nvidia.com/gpucores", "30")))
                .contains(new GpuRequest(1, new MemoryRequest.WholeCard(), 30, false));
    }

    @Test
    void gpuWithoutMemoryAndCoresMeansTheWholeCard() {
        var whole = new GpuRequest(1, new MemoryRequest.WholeCard(), 0, true);

        assertThat(GpuRequest.parse(Map.of("aliquot.io/vgpu", "1"))).contains(whole);
        assertThat(GpuRequest.parse(Map.of("aliquot.io/vgpu", "1", "nvidia.com/gpucores", "0")))
                .contains(whole);
    }

    @Test
    void allTheComputeWithMemoryGivenIsNotExclusive() {
        assertThat(GpuRequest.parse(Map.of("nvidia.com/gpumem", "3000", "nvidia.com/gpucores", "100")))
                .contains(new GpuRequest(1, new MemoryRequest.Mebibytes(3000), 100, false));
    }

    @Test
    void otherResourcesOrZeroGpusAreNoRequest() {
        assertThat(GpuRequest.parse(Map.of("cpu", "1", "memory", "3Gi"))).isEmpty();
        assertThat(GpuRequest.parse(Map.of("aliquot.io/vgpu", "0"))).isEmpty();
        assertThat(GpuRequest.parse(Map.of("nvidia.com/gpu", "0"))).isEmpty();
        assertThat(GpuRequest.parse(Map.of("aliquot.io/vgpu", "0", "nvidia.com/gpucores", "0")))
                .isEmpty();
    }

    @ParameterizedTest
    @CsvSource({
        "nvidia.com/gpumem, 3Gi, write 3072 instead of 3Gi",
        "nvidia.com/gpumem, 3000Mi, write 3000 instead of 3000Mi",
        "nvidia.com/gpumem, 1.5Gi, write 1536 instead of 1.5Gi",
        "nvidia.com/gpumem, 512Ki, write a whole number instead of 512Ki",
        "nvidia.com/gpumem, -1, instead of -1",
        "nvidia.com/gpumem, 1500m, instead of 1500m",
        "nvidia.com/gpumem, 99999999999999999999, instead of 99999999999999999999",
        "nvidia.com/gpumem, 9E, from 1 to 16777216",
        "nvidia.com/gpumem, lots, a Kubernetes quantity",
        "nvidia.com/gpumem, 1e99, instead of 1e99",
        "nvidia.com/gpumem-percentage, 101, from 1 to 100",
        "nvidia.com/gpucores, 101, from 0 to 100",
        "nvidia.com/gpucores, -5, from 0 to 100",
        "aliquot.io/vgpu, -1, from 0 to 1024",
        "aliquot.io/vgpu, 500m, from 0 to 1024",
    })
    void rejectsInvalidAmountsAndSaysWhatToWrite(String resource, String amount, String message) {
        assertThatThrownBy(() -> GpuRequest.parse(Map.of(resource, amount)))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining(resource)
                .hasMessageContaining(message);
    }

    @Test
    void rejectsValuesOutOfRange() {
        var memory = new MemoryRequest.WholeCard();
        assertThatThrownBy(() -> new GpuRequest(0, memory, 0, true)).hasMessageContaining("vGPUs from 1 to 1024");
        assertThatThrownBy(() -> new GpuRequest(1, memory, 101, false)).hasMessageContaining("cores from 0 to 100");
        assertThatThrownBy(() -> new MemoryRequest.Mebibytes(0)).hasMessageContaining("MiB from 1 to 16777216");
        assertThatThrownBy(() -> new MemoryRequest.Percentage(101)).hasMessageContaining("from 1 to 100");
    }

    @Test
    void rejectsMemoryTogetherWithAPercentage() {
        assertThatThrownBy(() ->
                        GpuRequest.parse(Map.of("nvidia.com/gpumem", "3000", "nvidia.com/gpumem-percentage", "5")))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining("not both");
    }

    @Test
    void rejectsZeroVgpusWithMemory() {
        assertThatThrownBy(() -> GpuRequest.parse(Map.of("aliquot.io/vgpu", "0", "nvidia.com/gpumem", "3000")))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining("aliquot.io/vgpu: 1");
    }

    @Test
    void allFormsOfAnAmountAreEqual() {
        assertThat(GpuRequest.parse(Map.of("nvidia.com/gpumem", "3k")))
                .isEqualTo(GpuRequest.parse(Map.of("nvidia.com/gpumem", "3000")))
                .isEqualTo(GpuRequest.parse(Map.of("nvidia.com/gpumem", "3e3")))
                .isEqualTo(GpuRequest.parse(Map.of("nvidia.com/gpumem", "3000000m")));
    }

    @Test
    void roundsAPercentageDownToAtLeastOneMebibyte() {
        assertThat(new MemoryRequest.Percentage(33).on(81920)).isEqualTo(27033);
        assertThat(new MemoryRequest.Percentage(1).on(50)).isEqualTo(1);
        assertThat(new MemoryRequest.Percentage(100).on(Gpu.LARGEST_MIB)).isEqualTo(Gpu.LARGEST_MIB);
    }
}
