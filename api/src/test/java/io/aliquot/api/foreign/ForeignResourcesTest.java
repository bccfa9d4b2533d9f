package io.aliquot.api.foreign;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.api.pods.PodDefaults;
import io.aliquot.api.pods.Priority;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class ForeignResourcesTest {
    private static final Map<String, String> NO_LABELS = Map.of();

    private static Map<String, String> translated(Map<String, String> limits) {
        return ForeignResources.toAliquot(limits, NO_LABELS, Compatibility.NONE, PodDefaults.NONE);
    }

    private static Map<String, String> translatedForHami(Map<String, String> limits) {
        return ForeignResources.toAliquot(limits, NO_LABELS, Compatibility.HAMI, PodDefaults.NONE);
    }

    @Test
    void translatesGibibytesToMebibytesOfOneGpu() {
        assertThat(translated(Map.of("cpu", "1", "aliyun.com/gpu-mem", "3")))
                .isEqualTo(Map.of("cpu", "1", "aliquot.io/vgpu", "1", "nvidia.com/gpumem", "3072"));
        assertThat(translated(Map.of("aliyun.com/gpu-mem", "2", "aliyun.com/gpu-core.percentage", "30")))
                .isEqualTo(Map.of("aliquot.io/vgpu", "1", "nvidia.com/gpumem", "2048", "nvidia.com/gpucores", "30"));
    }

    @Test
    void dividesGibibytesOverTheNumberOfGpusInThePodsLabel() {
        assertThat(ForeignResources.toAliquot(
                        Map.of("aliyun.com/gpu-mem", "8"),
                        Map.of("aliyun.com/gpu-count", "2"),
                        Compatibility.NONE,
                        PodDefaults.NONE))
                .isEqualTo(Map.of("aliquot.io/vgpu", "2", "nvidia.com/gpumem", "4096"));
        assertThatThrownBy(() -> ForeignResources.toAliquot(
                        Map.of("aliyun.com/gpu-mem", "9"),
                        Map.of("aliyun.com/gpu-count", "2"),
                        Compatibility.NONE,
                        PodDefaults.NONE))
                .hasMessageContaining("9 GiB cannot be divided equally over 2 GPUs")
                .hasMessageContaining("write a multiple of 2");
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "0", "two", "-1", "1025", "1.0"})
    void rejectsALabelThatIsNotANumberOfGpus(String count) {
        assertThatThrownBy(() -> ForeignResources.toAliquot(
                        Map.of("aliyun.com/gpu-mem", "8"),
                        Map.of("aliyun.com/gpu-count", count),
                        Compatibility.NONE,
                        PodDefaults.NONE))
                .hasMessageContaining("is not a number of GPUs from 1 to 1024");
    }

    @Test
    void distinguishesAcksResourcesFromAliquotsAndHamis() {
        for (String ack : List.of("aliyun.com/gpu", "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage")) {
            assertThat(ForeignResources.usesAckResources(Map.of("cpu", "1", ack, "1")))
                    .as(ack)
                    .isTrue();
        }
        assertThat(ForeignResources.usesAckResources(Map.of("nvidia.com/gpu", "1", "nvidia.com/priority", "1")))
                .isFalse();
    }

    @Test
    void translatesAcksWholeGpusAndRequestsTheBestLinks() {
        Map<String, String> limits = Map.of("aliyun.com/gpu", "4");

        assertThat(translated(limits)).isEqualTo(Map.of("aliquot.io/vgpu", "4", "nvidia.com/gpu", "0"));
        assertThat(ForeignResources.requestsBestLinks(limits)).isTrue();
        assertThat(ForeignResources.requestsBestLinks(translated(limits))).isFalse();
    }

    @Test
    void leavesAliquotsResourcesUnchanged() {
        Map<String, String> limits = Map.of("aliquot.io/vgpu", "2", "nvidia.com/gpumem", "3k", "memory", "1Gi");

        assertThat(translated(limits)).isEqualTo(limits);
        assertThat(translatedForHami(limits)).isEqualTo(limits);
    }

    @Test
    void movesNvidiasGpusToVgpusAndKeepsTheNameWithTheAmountZero() {
        Map<String, String> translated = translated(Map.of("nvidia.com/gpu", "2", "nvidia.com/gpumem", "3k"));

        assertThat(translated)
                .isEqualTo(Map.of("aliquot.io/vgpu", "2", "nvidia.com/gpu", "0", "nvidia.com/gpumem", "3k"));
        assertThat(translated(translated)).isEqualTo(translated);
    }

    @Test
    void aWholeCardKeepsAResourceByWhichTheGpuOperatorFindsThePod() {
        assertThat(translated(Map.of("aliquot.io/vgpu", "1")))
                .isEqualTo(Map.of("aliquot.io/vgpu", "1", "nvidia.com/gpu", "0"));
        assertThat(translated(Map.of("aliquot.io/vgpu", "1", "nvidia.com/gpumem", "3k")))
                .isEqualTo(Map.of("aliquot.io/vgpu", "1", "nvidia.com/gpumem", "3k"));
    }

    @Test
    void rejectsNvidiasGpusBesideVgpus() {
        assertThatThrownBy(() -> translated(Map.of("nvidia.com/gpu", "1", "aliquot.io/vgpu", "1")))
                .hasMessageContaining("write either nvidia.com/gpu or aliquot.io/vgpu, not both")
                .hasMessageContaining("LimitRange");
    }

    @ParameterizedTest
    @CsvSource({
        "nvidia.com/gpu, -1, 'nvidia.com/gpu: write a whole number from 0 to 1024 (vGPUs) instead of -1'",
        "nvidia.com/gpu, 500m, 'instead of 500m'",
        "aliyun.com/gpu-mem, 3Gi, 'aliyun.com/gpu-mem: write a whole number from 1 to 16384 (GiB) instead of 3Gi'",
        "aliyun.com/gpu-mem, 0, 'from 1 to 16384 (GiB) instead of 0'",
        "aliyun.com/gpu-mem, 2500m, 'instead of 2500m'",
        "aliyun.com/gpu-mem, 99999999999999999999, 'from 1 to 16384'",
        "aliyun.com/gpu-mem, much, 'aliyun.com/gpu-mem: expected a Kubernetes quantity'",
        "aliyun.com/gpu-core.percentage, 30, 'add aliyun.com/gpu-mem, the memory: aliyun.com/gpu-core.percentage alone'",
        "aliyun.com/gpu, -1, 'aliyun.com/gpu: write a whole number from 0 to 1024 (GPUs)'"
    })
    void rejectsInvalidAmountsAndSaysWhatToWrite(String name, String amount, String sentence) {
        assertThatThrownBy(() -> translated(Map.of(name, amount)))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining(sentence);
    }

    @Test
    void rejectsResourcesOfTwoProductsInOneContainer() {
        assertThatThrownBy(() -> translated(Map.of("aliyun.com/gpu-mem", "3", "nvidia.com/gpu", "1")))
                .hasMessage("write either aliyun.com/gpu-mem or nvidia.com/gpu, not both");
        assertThatThrownBy(() -> translated(Map.of("aliyun.com/gpu-mem", "3", "aliyun.com/gpu", "1")))
                .hasMessageContaining("remove it, or aliyun.com/gpu-mem");
    }

    @Test
    void removesThePriorityWhichHasHamisMeaning() {
        Map<String, String> high = Map.of("nvidia.com/gpu", "1", "nvidia.com/priority", "0");

        assertThat(translated(high)).isEqualTo(Map.of("aliquot.io/vgpu", "1", "nvidia.com/gpu", "0"));
        assertThat(ForeignResources.priority(high)).hasValue(Priority.HIGH);
        assertThat(ForeignResources.priority(Map.of("nvidia.com/priority", "1")))
                .hasValue(Priority.LOW);
        assertThat(ForeignResources.priority(Map.of())).isEmpty();
        assertThatThrownBy(() -> ForeignResources.priority(Map.of("nvidia.com/priority", "2")))
                .hasMessageContaining("from 0 to 1 (0 for high, 1 for low)");
    }

    @ParameterizedTest
    @CsvSource({"nvidia.com/gpu, 1", "nvidia.com/priority, 1", "aliyun.com/gpu-mem, 3"})
    void anAdmittedPodRequestsNothingThatIsTranslated(String resource, String amount) {
        assertThatThrownBy(() -> ForeignResources.requireTranslated(Map.of(resource, amount)))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining(resource)
                .hasMessageContaining("translated only when a pod is created");
        ForeignResources.requireTranslated(Map.of("nvidia.com/gpu", "0", "aliquot.io/vgpu", "1"));
    }

    @Test
    void forHamiReducesCoresTo100AndPrefersMebibytes() {
        assertThat(translatedForHami(Map.of("nvidia.com/gpucores", "150"))).containsEntry("nvidia.com/gpucores", "100");
        assertThat(translatedForHami(Map.of("nvidia.com/gpumem", "3k", "nvidia.com/gpumem-percentage", "50")))
                .isEqualTo(Map.of("nvidia.com/gpumem", "3k"));
        assertThat(translatedForHami(Map.of("nvidia.com/gpumem", "0", "nvidia.com/gpumem-percentage", "50")))
                .isEqualTo(Map.of("nvidia.com/gpumem-percentage", "50"));
        assertThat(translatedForHami(Map.of("nvidia.com/gpu", "1", "nvidia.com/gpumem", "0")))
                .isEqualTo(Map.of("aliquot.io/vgpu", "1", "nvidia.com/gpu", "0"));
    }

    @Test
    void forHamiAllCoresOrAllMemoryIsTheWholeCard() {
        assertThat(request(Compatibility.HAMI, "nvidia.com/gpumem", "3k", "nvidia.com/gpucores", "100"))
                .isEqualTo(new GpuRequest(1, new MemoryRequest.Mebibytes(3000), 100, true));
        assertThat(request(Compatibility.NONE, "nvidia.com/gpumem", "3k", "nvidia.com/gpucores", "100"))
                .isEqualTo(new GpuRequest(1, new MemoryRequest.Mebibytes(3000), 100, false));
        assertThat(request(Compatibility.HAMI, "aliquot.io/vgpu", "1", "nvidia.com/gpumem-percentage", "100")
                        .exclusive())
                .isTrue();
        assertThat(request(Compatibility.HAMI, "nvidia.com/gpucores", "30", "nvidia.com/gpumem-percentage", "100")
                        .exclusive())
                .isFalse();
        assertThat(request(Compatibility.HAMI, "aliquot.io/vgpu", "1", "nvidia.com/gpucores", "99")
                        .exclusive())
                .isFalse();
    }

    private static GpuRequest request(
            Compatibility compatibility, String one, String amount, String two, String other) {
        return GpuRequest.parse(Map.of(one, amount, two, other)).orElseThrow().as(compatibility);
    }
}
