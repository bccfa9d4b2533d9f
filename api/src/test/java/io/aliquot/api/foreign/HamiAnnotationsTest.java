package io.aliquot.api.foreign;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.Numa;
import io.aliquot.api.pods.Placement;
import io.aliquot.api.pods.PlacementPreferences;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class HamiAnnotationsTest {
    private static final String ONE = "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001";
    private static final String TWO = "GPU-8f6e8f0c-0002-4a5b-9c3d-000000000002";

    private static PlacementPreferences preferences(String name, String value) {
        return HamiAnnotations.preferences(Map.of(name, value));
    }

    private static Gpu gpu(int index) {
        return new Gpu(index == 0 ? ONE : TWO, index, "NVIDIA A10", 23028, 0, -1, Gpu.HEALTHY, Gpu.SHIM, Map.of());
    }

    @Test
    void aTypeMatchesAnyPartOfTheModelWithOrWithoutThePrefixNvidia() {
        PlacementPreferences preferences = preferences("nvidia.com/use-gputype", "a10, NVIDIA-Tesla V100");

        assertThat(preferences.takesModel("NVIDIA A100-SXM4-80GB")).isTrue();
        assertThat(preferences.takesModel("Tesla V100-PCIE-32GB")).isTrue();
        assertThat(preferences.takesModel("Tesla T4")).isFalse();
        assertThat(preferences("nvidia.com/nouse-gputype", "1080,2080").takesModel("NVIDIA GeForce RTX 2080 Ti"))
                .isFalse();
    }

    @Test
    void translatesUuidsAndIndexes() {
        assertThat(preferences("nvidia.com/use-gpuuuid", ONE).takes(gpu(0))).isTrue();
        assertThat(preferences("nvidia.com/use-gpuuuid", ONE).takes(gpu(1))).isFalse();
        assertThat(preferences("nvidia.com/nouse-gpuuuid", ONE).takes(gpu(0))).isFalse();
        assertThat(preferences("nvidia.com/use-gpuindexes", "1,2").takes(gpu(0)))
                .isFalse();
        assertThat(preferences("nvidia.com/use-gpuindexes", "1,2").takes(gpu(1)))
                .isTrue();
        assertThat(preferences("nvidia.com/nouse-gpuindexes", "0").takes(gpu(0)))
                .isFalse();
        assertThat(preferences("nvidia.com/nouse-gpuindexes", "0").choosesGpus())
                .isTrue();
    }

    @Test
    void translatesSchedulerPolicies() {
        assertThat(preferences("hami.io/node-scheduler-policy", " spread ").nodePlacement())
                .contains(Placement.SPREAD);
        assertThat(preferences("hami.io/gpu-scheduler-policy", "binpack").gpuPlacement())
                .contains(Placement.BINPACK);
        assertThat(preferences("hami.io/gpu-scheduler-policy", "topology-aware").topology())
                .isTrue();
        PlacementPreferences several = preferences("hami.io/gpu-scheduler-policy", "spread, numa");
        assertThat(several.gpuPlacement()).contains(Placement.SPREAD);
        assertThat(several.numa()).contains(Numa.PREFERRED);
    }

    @Test
    void numaBindRequiresOneNumaDomain() {
        assertThat(preferences("nvidia.com/numa-bind", "true").numa()).contains(Numa.REQUIRED);
        assertThat(preferences("nvidia.com/numa-bind", "0").numa()).isEmpty();
        assertThat(HamiAnnotations.preferences(
                                Map.of("nvidia.com/numa-bind", "T", "hami.io/gpu-scheduler-policy", "numa"))
                        .numa())
                .contains(Numa.REQUIRED);
    }

    @Test
    void aliquotsAnnotationTakesPrecedence() {
        PlacementPreferences preferences = HamiAnnotations.preferences(
                Map.of("nvidia.com/use-gputype", "V100", "aliquot.io/use-gpu-model", "A10", "other", "x"));

        assertThat(preferences.takesModel("NVIDIA A10")).isTrue();
        assertThat(preferences.takesModel("Tesla V100-PCIE-32GB")).isFalse();
    }

    @Test
    void acceptsTheModeHamiCoreAndVulkanFalseWithoutEffect() {
        assertThat(preferences("nvidia.com/vgpu-mode", "hami-core").choosesGpus())
                .isFalse();
        assertThat(preferences("hami.io/vulkan", "false").choosesGpus()).isFalse();
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "nvidia.com/vgpu-mode | mig | \"mig\" is not supported yet; allowed: hami-core",
                "nvidia.com/mig-profile-preference | 4g | is not supported yet; remove it",
                "hami.io/numa-alignment | strict | is not supported yet; remove it",
                "hami.io/vulkan | true | does not limit Vulkan's memory yet",
                "hami.io/vulkan | yes | \"yes\" is unknown; allowed: true, false",
                "hami.io/gpu-scheduler-policy | mutex | for a whole card request only aliquot.io/vgpu",
                "hami.io/gpu-scheduler-policy | binpack,best | \"best\" is unknown; allowed: binpack, spread, topology-aware",
                "hami.io/node-scheduler-policy | topology-aware | is unknown; allowed: binpack, spread",
                "nvidia.com/numa-bind | maybe | \"maybe\" is unknown; allowed: true, false",
                "nvidia.com/use-gpuuuid | GPU-123456 | expected a GPU's UUID",
                "nvidia.com/use-gputype | A100, | expected a GPU model",
                "nvidia.com/use-gpuindexes | 0-3 | expected a GPU's index on its node such as 0",
            })
    void rejectsUnknownAndUnsupportedValues(String name, String value, String message) {
        assertThatThrownBy(() -> preferences(name, value))
                .isInstanceOf(FormatException.class)
                .hasMessageStartingWith("annotation " + name)
                .hasMessageContaining(message);
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "?", "true!", "\u0000"})
    void validatesEveryAnnotation(String value) {
        for (String name : HamiAnnotations.NAMES) {
            assertThatThrownBy(() -> preferences(name, value))
                    .isInstanceOf(FormatException.class)
                    .hasMessageStartingWith("annotation " + name);
        }
    }
}
