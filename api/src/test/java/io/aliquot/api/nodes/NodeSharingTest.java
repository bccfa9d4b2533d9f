package io.aliquot.api.nodes;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

final class NodeSharingTest {
    private static final Gpu FIRST = gpu(0);
    private static final Gpu SECOND = gpu(1);

    @Test
    void withoutAnnotationAllGpusHaveTheNodesMode() {
        NodeSharing sharing = NodeSharing.of(Map.of(Labels.SHARE, "memory"), Map.of(Annotations.GPU_SHARE, " "));

        assertThat(sharing).isEqualTo(NodeSharing.all(SharingMode.MEMORY));
        assertThat(sharing.mode(SECOND)).isEqualTo(SharingMode.MEMORY);
        assertThat(sharing.slots(SECOND, 10)).isEqualTo(10);
    }

    @Test
    void exceptionsNameGpusByIndexOrUuidAndTheUuidGoesFirst() {
        NodeSharing sharing = of("01 = exclusive , " + FIRST.uuid() + "=memory:4, 0=exclusive:2");

        assertThat(sharing.mode(FIRST)).isEqualTo(SharingMode.MEMORY);
        assertThat(sharing.slots(FIRST, 10)).isEqualTo(4);
        assertThat(sharing.slots(FIRST, 3)).as("the node's number holds, too").isEqualTo(3);
        assertThat(sharing.mode(SECOND)).isEqualTo(SharingMode.EXCLUSIVE);
        assertThat(sharing.unknown(List.of(FIRST, SECOND))).isEmpty();
        assertThat(sharing.unknown(List.of(SECOND))).containsExactlyInAnyOrder("0", FIRST.uuid());
        assertThat(sharing.print()).isEqualTo("core-memory, 0=exclusive:2, 1=exclusive, " + FIRST.uuid() + "=memory:4");
    }

    /** kube-scheduler counts cores that are not reserved, so the node's total covers what such a GPU's pods may request. */
    @Test
    void theTotalOfCoresFollowsTheModeOfEachGpu() {
        var inventory =
                new Inventory(new VisibleDevices("{uuid}"), Scaling.ONE, Scaling.ONE, 10, List.of(FIRST, SECOND));

        assertThat(inventory.extendedResources(of("1=memory:4"))).containsEntry(Resources.CORES, 500L);
        assertThat(inventory.extendedResources(of("1=exclusive"))).containsEntry(Resources.CORES, 200L);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "exclusive | expected a GPU's index or UUID, = and its mode",
                "0=none | \"none\" is unknown; allowed: core-memory, memory, exclusive",
                "0=topology | \"topology\" is unknown; allowed: core-memory, memory, exclusive",
                "0=memory:0 | is not a number of slots",
                "0=memory:1:2 | at most one number of slots",
                "GPU-1=memory | expected a GPU's UUID",
                "-1=memory | expected a GPU's UUID",
                "0=memory,0=exclusive | GPU 0 is there twice",
                "0=memory, | expected a GPU's index or UUID"
            })
    void whatCannotBeReadIsRefused(String text, String message) {
        assertThatThrownBy(() -> of(text))
                .isInstanceOf(FormatException.class)
                .hasMessageStartingWith("aliquot.io/gpu-share: ")
                .hasMessageContaining(message);
    }

    private static NodeSharing of(String annotation) {
        return NodeSharing.of(Map.of(), Map.of(Annotations.GPU_SHARE, annotation));
    }

    private static Gpu gpu(int index) {
        return new Gpu(
                "GPU-8f6e8f0c-0001-4a5b-9c3d-00000000000" + index,
                index,
                "NVIDIA A100-SXM4-80GB",
                81_920,
                256,
                -1,
                Gpu.HEALTHY,
                Gpu.SHIM,
                Map.of());
    }
}
