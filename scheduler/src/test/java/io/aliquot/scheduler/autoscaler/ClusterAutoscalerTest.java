package io.aliquot.scheduler.autoscaler;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.autoscaler.ClusterAutoscaler.Readiness;
import io.aliquot.scheduler.autoscaler.ClusterAutoscaler.Release;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * Each row is what two functions of Cluster Autoscaler answer about a node, read in the source that the row names: those of
 * 1.31 to 1.37 are of github.com/kubernetes/autoscaler below cluster-autoscaler/, 33c3f97bf274 is of
 * github.com/kubernetes-sigs/cluster-autoscaler below pkg/.
 */
class ClusterAutoscalerTest {
    private static final Map<String, String> GKE = Map.of("cloud.google.com/gke-accelerator", "nvidia-l4");

    /**
     * Readiness: FilterOutNodesWithUnreadyResources. Target: GetNodeGpuTarget for a node in no autoscaled group, where an
     * error ends the scale-up of every group (core/scaleup/resource/manager.go, customResourcesTotal).
     */
    @ParameterizedTest(name = "{1} {2}: {3}")
    @CsvSource(delimiter = '|', textBlock = """
            UP_TO_1_33 | 2b0c0761f57d | processors/customresources/gpu_processor.go:44-51,97-103   | aliquot.io/vgpu       | unready | error
            UP_TO_1_33 | 2b0c0761f57d | processors/customresources/gpu_processor.go:45,50,84-87    | nvidia.com/gpu        | ready   | counted
            UP_TO_1_33 | 2b0c0761f57d | processors/customresources/gpu_processor.go:46,50,84,97    | microsoft.com/directx | ready   | error
            UP_TO_1_33 | 2b0c0761f57d | processors/customresources/gpu_processor.go:44-51          | amd.com/gpu           | unready | error
            UP_TO_1_33 | be4b5a18814a | processors/customresources/gpu_processor.go:47,51,85       | microsoft.com/directx | ready   | error
            V1_34      | d63eaf8b9e81 | processors/customresources/gpu_processor.go:50-55,102-108  | aliquot.io/vgpu       | unready | error
            V1_34      | d63eaf8b9e81 | utils/gpu/gpu.go:44-49,135-143                             | nvidia.com/gpu        | ready   | counted
            V1_34      | d63eaf8b9e81 | processors/customresources/gpu_processor.go:51-57,90-92    | microsoft.com/directx | ready   | counted
            V1_34      | d63eaf8b9e81 | utils/gpu/gpu.go:44-49,135-143                             | habana.ai/gaudi       | ready   | counted
            V1_34      | d63eaf8b9e81 | utils/gpu/gpu.go:44-49,135-143                             | gpu.intel.com/xe      | unready | error
            FROM_1_35  | a16f0ae8b557 | processors/customresources/gpu_processor.go:51-56,103-109  | aliquot.io/vgpu       | unready | error
            FROM_1_35  | a16f0ae8b557 | utils/gpu/gpu.go:46-52                                     | microsoft.com/directx | ready   | counted
            FROM_1_35  | a16f0ae8b557 | utils/gpu/gpu.go:46-52                                     | gpu.intel.com/xe      | ready   | counted
            FROM_1_35  | 33c3f97bf274 | processors/customresources/gpu_processor.go:51-56,103-109  | aliquot.io/vgpu       | unready | error
            FROM_1_35  | 33c3f97bf274 | utils/gpu/gpu.go:46-52,138-146                             | microsoft.com/directx | ready   | counted
            FROM_1_35  | 33c3f97bf274 | utils/gpu/gpu.go:46-52,138-146                             | amd.com/gpu           | ready   | counted
            """)
    void aReleaseJudgesANodeAsItsSourceSays(
            Release release, String commit, String source, String allocatable, String readiness, String target) {
        assertThat(release.takesForReady(Set.of(allocatable))).isEqualTo(readiness.equals("ready"));
        assertThat(release.counts(Set.of(allocatable))).isEqualTo(target.equals("counted"));
    }

    @Test
    void aNodeThatSomeReleaseTakesForUnreadyIsNotReadyAndTheMessageSaysWhatToDo() {
        assertThat(ClusterAutoscaler.readiness(GKE, Set.of("aliquot.io/vgpu")))
                .hasValue(new Readiness(
                        false,
                        "NoKnownGpuResource",
                        "Cluster Autoscaler of every version takes this node for unready: it has the label"
                                + " cloud.google.com/gke-accelerator and nothing allocatable of amd.com/gpu, gpu.intel.com/xe,"
                                + " habana.ai/gaudi, microsoft.com/directx, nvidia.com/gpu. Remove the label where you set it"
                                + " yourself; where the cloud sets it, set the chart's value"
                                + " autoscaler.readyResource=microsoft.com/directx (docs/autoscalers.md)"));
        assertThat(ClusterAutoscaler.readiness(GKE, Set.of("amd.com/gpu"))
                        .orElseThrow()
                        .message())
                .startsWith("Cluster Autoscaler 1.33 and earlier takes");
        assertThat(ClusterAutoscaler.readiness(GKE, Set.of("gpu.intel.com/xe"))
                        .orElseThrow()
                        .message())
                .startsWith("Cluster Autoscaler 1.33 and earlier and 1.34 takes");
    }

    @Test
    void aNodeWithAKnownResourceIsReadyAndTheMessageNamesReleasesThatCannotCountIt() {
        Readiness directx = ClusterAutoscaler.readiness(GKE, Set.of("microsoft.com/directx"))
                .orElseThrow();
        assertThat(directx.ready()).isTrue();
        assertThat(directx.message()).contains("1.33 and earlier cannot count its GPUs");
        assertThat(ClusterAutoscaler.readiness(GKE, Set.of("nvidia.com/gpu"))
                        .orElseThrow()
                        .message())
                .doesNotContain("cannot count");
    }

    /** GKE's rows are one cloud's: every label counts, and no other. */
    @Test
    void aNodeIsJudgedByTheLabelOfAnyCloudAndNotWithoutOne() {
        for (String label : new TreeSet<>(ClusterAutoscaler.GPU_LABELS)) {
            assertThat(ClusterAutoscaler.readiness(Map.of(label, ""), Set.of()))
                    .as(label)
                    .isPresent();
        }
        assertThat(ClusterAutoscaler.readiness(Map.of("gpu", "on", "nvidia.com/gpu.present", "true"), Set.of()))
                .isEmpty();
    }
}
