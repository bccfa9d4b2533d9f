package io.aliquot.api;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class HamiAnnotationsTest {
    private static final String ONE = "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001";
    private static final String TWO = "GPU-8f6e8f0c-0002-4a5b-9c3d-000000000002";

    private static PlacementPreferences wishes(String name, String value) {
        return PlacementPreferences.parse(Map.of(name, value));
    }

    private static Gpu gpu(int index) {
        return new Gpu(index == 0 ? ONE : TWO, index, "NVIDIA A10", 23028, 0, -1, true, Gpu.SHIM, Map.of());
    }

    @Test
    void aTypeIsAnyPartOfTheModelWithOrWithoutTheWordBeforeIt() {
        PlacementPreferences wishes = wishes("nvidia.com/use-gputype", "a10, NVIDIA-Tesla V100");

        assertThat(wishes.takesModel("NVIDIA A100-SXM4-80GB")).isTrue();
        assertThat(wishes.takesModel("Tesla V100-PCIE-32GB")).isTrue();
        assertThat(wishes.takesModel("Tesla T4")).isFalse();
        assertThat(wishes("nvidia.com/nouse-gputype", "1080,2080").takesModel("NVIDIA GeForce RTX 2080 Ti"))
                .isFalse();
    }

    @Test
    void uuidsAndIndexesAreTakenOrAvoided() {
        assertThat(wishes("nvidia.com/use-gpuuuid", ONE).takes(gpu(0))).isTrue();
        assertThat(wishes("nvidia.com/use-gpuuuid", ONE).takes(gpu(1))).isFalse();
        assertThat(wishes("nvidia.com/nouse-gpuuuid", ONE).takes(gpu(0))).isFalse();
        assertThat(wishes("nvidia.com/use-gpuindexes", "1,2").takes(gpu(0))).isFalse();
        assertThat(wishes("nvidia.com/use-gpuindexes", "1,2").takes(gpu(1))).isTrue();
        assertThat(wishes("nvidia.com/nouse-gpuindexes", "0").takes(gpu(0))).isFalse();
        assertThat(wishes("nvidia.com/nouse-gpuindexes", "0").choosesGpus()).isTrue();
    }

    @Test
    void policiesBecomePlacements() {
        assertThat(wishes("hami.io/node-scheduler-policy", " spread ").nodePlacement())
                .contains(Placement.SPREAD);
        assertThat(wishes("hami.io/gpu-scheduler-policy", "binpack").gpuPlacement())
                .contains(Placement.BINPACK);
        assertThat(wishes("hami.io/gpu-scheduler-policy", "topology-aware").topology())
                .isTrue();
        PlacementPreferences several = wishes("hami.io/gpu-scheduler-policy", "spread, numa");
        assertThat(several.gpuPlacement()).contains(Placement.SPREAD);
        assertThat(several.numa()).contains(Numa.PREFERRED);
    }

    @Test
    void bindingToANumaDomainRequiresIt() {
        assertThat(wishes("nvidia.com/numa-bind", "true").numa()).contains(Numa.REQUIRED);
        assertThat(wishes("nvidia.com/numa-bind", "0").numa()).isEmpty();
        assertThat(PlacementPreferences.parse(
                                Map.of("nvidia.com/numa-bind", "T", "hami.io/gpu-scheduler-policy", "numa"))
                        .numa())
                .contains(Numa.REQUIRED);
    }

    @Test
    void ourNameGoesFirst() {
        PlacementPreferences wishes = PlacementPreferences.parse(
                Map.of("nvidia.com/use-gputype", "V100", "aliquot.io/use-gpu-model", "A10", "other", "x"));

        assertThat(wishes.takesModel("NVIDIA A10")).isTrue();
        assertThat(wishes.takesModel("Tesla V100-PCIE-32GB")).isFalse();
    }

    @Test
    void theOnlyModeIsTheOneThatSharesInSoftware() {
        assertThat(wishes("nvidia.com/vgpu-mode", "hami-core").choosesGpus()).isFalse();
        assertThat(wishes("hami.io/vulkan", "false").choosesGpus()).isFalse();
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "nvidia.com/vgpu-mode | mig | \"mig\" is not supported yet; allowed: hami-core",
                "nvidia.com/mig-profile-preference | 4g | is not supported yet; remove it",
                "hami.io/numa-alignment | strict | is not supported yet; remove it",
                "hami.io/vulkan | true | doesn't limit Vulkan's memory yet",
                "hami.io/vulkan | yes | \"yes\" is unknown; allowed: true, false",
                "hami.io/gpu-scheduler-policy | mutex | ask for nvidia.com/gpu alone",
                "hami.io/gpu-scheduler-policy | binpack,best | \"best\" is unknown; allowed: binpack, spread, topology-aware",
                "hami.io/node-scheduler-policy | topology-aware | is unknown; allowed: binpack, spread",
                "nvidia.com/numa-bind | maybe | \"maybe\" is unknown; allowed: true, false",
                "nvidia.com/use-gpuuuid | GPU-123456 | expected a GPU's UUID",
                "nvidia.com/use-gputype | A100, | expected a GPU's model",
                "nvidia.com/use-gpuindexes | 0-3 | expected a GPU's index on its node such as 0",
            })
    void whatIsUnknownOrUnsupportedIsRefusedWithASentence(String name, String value, String sentence) {
        assertThatThrownBy(() -> wishes(name, value))
                .isInstanceOf(FormatException.class)
                .hasMessageStartingWith("annotation " + name)
                .hasMessageContaining(sentence);
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "?", "true!", "\u0000"})
    void noNameIsPassedOverWhateverItsValue(String value) {
        for (String name : HamiAnnotations.NAMES) {
            assertThatThrownBy(() -> wishes(name, value)).as(name).isInstanceOf(FormatException.class);
        }
    }
}
