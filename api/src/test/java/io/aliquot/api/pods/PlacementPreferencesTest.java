package io.aliquot.api.pods;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.GpuUuids;
import io.aliquot.api.nodes.Scaling;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class PlacementPreferencesTest {
    private static final String ONE = "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001";
    private static final String TWO = "GPU-8f6e8f0c-0002-4a5b-9c3d-000000000002";

    @Test
    void aPodWithoutAnnotationsAcceptsAnyGpuAndHasAFixedCorePolicy() {
        PlacementPreferences preferences = PlacementPreferences.parse(Map.of("example.com/other", "?"));

        assertThat(preferences.choosesGpus()).isFalse();
        assertThat(preferences.takesModel("NVIDIA A10")).isTrue();
        assertThat(preferences.takesUuid(ONE)).isTrue();
        assertThat(preferences.nodePlacement()).isEmpty();
        assertThat(preferences.gpuPlacement()).isEmpty();
        assertThat(preferences.numa()).isEmpty();
        assertThat(preferences.corePolicy()).isEqualTo(CorePolicy.FIXED);
        assertThat(preferences.priority()).isEqualTo(Priority.NORMAL);
    }

    @Test
    void readsEveryAnnotation() {
        PlacementPreferences preferences = PlacementPreferences.parse(Map.of(
                "aliquot.io/node-placement", "spread",
                "aliquot.io/gpu-placement", "binpack",
                "aliquot.io/use-gpu-model", "A100, H100",
                "aliquot.io/avoid-gpu-model", "A100-PCIE",
                "aliquot.io/use-gpu-uuid", ONE + "," + TWO,
                "aliquot.io/avoid-gpu-uuid", TWO,
                "aliquot.io/numa", "required",
                "aliquot.io/core-policy", "elastic",
                "aliquot.io/priority", "low",
                "aliquot.io/compatibility", "hami"));

        assertThat(preferences.choosesGpus()).isTrue();
        assertThat(preferences.takesModel("NVIDIA A100-SXM4-80GB")).isTrue();
        assertThat(preferences.takesModel("NVIDIA A100-PCIE-40GB")).isFalse();
        assertThat(preferences.takesModel("Tesla V100-SXM2-32GB")).isFalse();
        assertThat(preferences.takesUuid(ONE)).isTrue();
        assertThat(preferences.takesUuid(TWO)).isFalse();
        assertThat(preferences.compatibility()).contains(Compatibility.HAMI);
        assertThat(preferences.nodePlacement()).contains(Placement.SPREAD);
        assertThat(preferences.gpuPlacement()).contains(Placement.BINPACK);
        assertThat(preferences.numa()).contains(Numa.REQUIRED);
        assertThat(preferences.corePolicy()).isEqualTo(CorePolicy.ELASTIC);
        assertThat(preferences.priority()).isEqualTo(Priority.LOW);
    }

    @Test
    void preferencesWithEqualValuesAreEqual() {
        var one = Map.of("aliquot.io/use-gpu-model", "A100, H100", "aliquot.io/numa", "required");

        assertThat(PlacementPreferences.parse(one))
                .isEqualTo(PlacementPreferences.parse(new HashMap<>(one)))
                .hasSameHashCodeAs(PlacementPreferences.parse(one))
                .isNotEqualTo(PlacementPreferences.parse(
                        Map.of("aliquot.io/use-gpu-model", "A100", "aliquot.io/numa", "required")))
                .isNotEqualTo(PlacementPreferences.parse(
                        Map.of("aliquot.io/avoid-gpu-model", "A100, H100", "aliquot.io/numa", "required")));
    }

    @Test
    void validatesEveryAnnotation() {
        for (String name : PlacementPreferences.NAMES) {
            assertThatThrownBy(() -> PlacementPreferences.parse(Map.of(name, "?!")))
                    .isInstanceOf(FormatException.class)
                    .hasMessageStartingWith("annotation " + name + ": ");
        }
    }

    @ParameterizedTest
    @CsvSource({
        "A10, NVIDIA A10, true",
        "A10, NVIDIA A100-SXM4-80GB, false",
        "A10*, NVIDIA A100-SXM4-80GB, true",
        "a100, NVIDIA A100-SXM4-80GB, true",
        "A100-SXM4, NVIDIA A100-SXM4-80GB, true",
        "nvidia a100-sxm4-80gb, NVIDIA A100-SXM4-80GB, true",
        "80G, NVIDIA A100-SXM4-80GB, false",
        "*00*, Tesla V100-SXM2-32GB, true",
        "100, Tesla V100-SXM2-32GB, false",
        "*100, Tesla V100-SXM2-32GB, true",
        "RTX 4090, NVIDIA GeForce RTX 4090, true",
        "4090, NVIDIA GeForce RTX 4090 D, true",
        "409, NVIDIA GeForce RTX 4090, false",
        "T4, Tesla T4, true",
        "T4, Tesla T4G T4, true",
        "NVIDIA GeForce RTX 4090 with a longer name, NVIDIA GeForce RTX 4090, false",
    })
    void matchesAModelByItsWords(String pattern, String model, boolean matches) {
        assertThat(ModelPattern.parse(pattern).matches(model)).isEqualTo(matches);
        assertThat(ModelPattern.parse(pattern).print()).isEqualTo(pattern);
    }

    @ParameterizedTest
    @ValueSource(strings = {"", " ", "A100,", ",A100", "A1*0", "*", "**", "A100;V100", "A1\n00", "Ä100", "-"})
    void rejectsInvalidModels(String list) {
        assertThatThrownBy(() -> ModelPattern.parseList("aliquot.io/use-gpu-model", list))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining("such as A100 or RTX 4090")
                .hasMessageContaining("separate several values by commas");
    }

    @ParameterizedTest
    @ValueSource(
            strings = {"", "0", "GPU-8F6E8F0C-0001-4A5B-9C3D-000000000001", "CPU-8f6e8f0c-0001-4a5b-9c3d-000000000001"})
    void rejectsInvalidUuids(String list) {
        assertThatThrownBy(() -> GpuUuids.parseList("aliquot.io/cordon-gpus", list))
                .hasMessageStartingWith("aliquot.io/cordon-gpus: expected a GPU's UUID such as GPU-8f6e8f0c");
    }

    @Test
    void limitsTheLengthOfLists() {
        assertThatThrownBy(() -> GpuUuids.parseList("here", String.join(",", Collections.nCopies(65, ONE))))
                .hasMessage("here: write at most 64 values");
        assertThat(GpuUuids.parseList("here", String.join(" , ", Collections.nCopies(64, ONE))))
                .containsExactly(ONE);
    }

    @Test
    void aPriorityIsOneOfThreeWords() {
        for (String text : new String[] {"", "0", "1000000", "-1", "1.5", "High", "medium"}) {
            assertThatThrownBy(() -> PlacementPreferences.parse(Map.of("aliquot.io/priority", text)))
                    .hasMessageContaining("is unknown; allowed: high, normal, low");
        }
    }

    @Test
    void namesTheAllowedValuesIfAValueIsUnknown() {
        assertThatThrownBy(() -> Numa.parse("aliquot.io/numa", "true"))
                .hasMessage("aliquot.io/numa: \"true\" is unknown; allowed: required, preferred");
        assertThatThrownBy(() -> CorePolicy.parse("aliquot.io/core-policy", "force"))
                .hasMessage("aliquot.io/core-policy: \"force\" is unknown; allowed: fixed, elastic, none");
    }

    @Test
    void parsesEveryScalingThatItPrints() {
        for (int hundredths = 10; hundredths <= 10_000; hundredths++) {
            var scaling = new Scaling(hundredths);
            assertThat(Scaling.parse("here", scaling.print())).isEqualTo(scaling);
        }
        assertThat(Scaling.parse("here", "1.5").print()).isEqualTo("1.5");
        assertThat(Scaling.parse("here", "2")).isEqualTo(new Scaling(200));
        assertThat(Scaling.parse("here", "1.5").of(81_919)).isEqualTo(122_878);
        assertThat(Scaling.ONE.of(81_919)).isEqualTo(81_919);
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "0", "0.09", "100.01", "1.555", "-1", "1e2", "150%", "1,5", " 1", "0x2", "NaN"})
    void rejectsInvalidScalings(String text) {
        assertThatThrownBy(() -> Scaling.parse("aliquot.io/memory-scaling", text))
                .hasMessageContaining("is not a scaling from 0.1 to 100 with at most two decimals");
    }
}
