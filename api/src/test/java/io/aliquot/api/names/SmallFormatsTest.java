package io.aliquot.api.names;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.nodes.Link;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.nodes.SlotCount;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.pods.Fence;
import io.aliquot.api.pods.Placement;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class SmallFormatsTest {
    @Test
    void keysContainShortContainerNamesUnchanged() {
        assertThat(Annotations.vgpu("main")).isEqualTo("aliquot.io/vgpu.main");
        assertThat(Annotations.visibleDevices("a".repeat(46)))
                .isEqualTo("aliquot.io/visible-devices." + "a".repeat(46));
    }

    @Test
    void keysShortenLongContainerNamesAndStayDistinct() {
        String one = Annotations.visibleDevices("c".repeat(62) + "1");
        String two = Annotations.visibleDevices("c".repeat(62) + "2");

        assertThat(one).isNotEqualTo(two);
        assertThat(one.substring("aliquot.io/".length())).hasSize(62);
        // The hash must not change, because a scheduler and a webhook of different versions must agree.
        assertThat(Annotations.vgpu("x".repeat(47)))
                .isEqualTo("aliquot.io/vgpu." + "x".repeat(37) + "-" + HASH_OF_47_X);
    }

    private static final String HASH_OF_47_X = "b35f3728";

    @Test
    void recognizesReservedKeys() {
        assertThat(Annotations.reservedOnPods("aliquot.io/vgpu.main")).isTrue();
        assertThat(Annotations.reservedOnPods("aliquot.io/visible-devices.main"))
                .isTrue();
        assertThat(Annotations.reservedOnPods("aliquot.io/fence")).isTrue();
        assertThat(Annotations.reservedOnPods("aliquot.io/resize-fence")).isTrue();
        assertThat(Annotations.reservedOnPods("aliquot.io/total-memory-mib")).isTrue();
        assertThat(Annotations.reservedOnPods("aliquot.io/total-cores")).isTrue();
        assertThat(Annotations.reservedOnPods("aliquot.io/node-placement")).isFalse();
    }

    @Test
    void aFenceIsHolderAndTransitions() {
        assertThat(new Fence("aliquot-scheduler-7d9c_3f2a/odd", 42).print())
                .isEqualTo("aliquot-scheduler-7d9c_3f2a/odd/42");
        assertThatThrownBy(() -> new Fence("", 1)).isInstanceOf(FormatException.class);
        assertThatThrownBy(() -> new Fence("holder", -1)).isInstanceOf(FormatException.class);
    }

    @Test
    void parsesThePlacementsThatItPrints() {
        for (Placement placement : Placement.values()) {
            assertThat(Placement.parse("here", placement.print())).isEqualTo(placement);
        }
    }

    @Test
    void rejectsAnUnknownPlacementAndNamesTheAllowedOnes() {
        assertThatThrownBy(() -> Placement.parse("aliquot.io/node-placement", "best"))
                .hasMessage("aliquot.io/node-placement: \"best\" is unknown; allowed: binpack, spread, fragmentation");
    }

    @Test
    void readsTheSharingModeFromAliquotsLabelOrAcks() {
        assertThat(SharingMode.of(Map.of())).isEqualTo(SharingMode.CORE_MEMORY);
        assertThat(SharingMode.of(Map.of(Labels.SHARE, "topology"))).isEqualTo(SharingMode.TOPOLOGY);
        assertThat(SharingMode.of(Map.of(Labels.SHARE, "mig"))).isEqualTo(SharingMode.MIG);
        assertThat(SharingMode.of(Map.of(Labels.SHARE, "mig-shim"))).isEqualTo(SharingMode.MIG_SHIM);
        assertThat(SharingMode.of(Map.of(Labels.ACK_SHARE, "core_mem"))).isEqualTo(SharingMode.CORE_MEMORY);
        assertThat(SharingMode.of(Map.of(Labels.ACK_SHARE, "default"))).isEqualTo(SharingMode.EXCLUSIVE);
        assertThat(SharingMode.of(Map.of(Labels.ACK_SHARE, "cgpu", Labels.SHARE, "none")))
                .isEqualTo(SharingMode.NONE);
    }

    @Test
    void rejectsAnUnknownSharingModeAndNamesTheAllowedOnes() {
        assertThatThrownBy(() -> SharingMode.of(Map.of(Labels.SHARE, "mps")))
                .hasMessageContaining("not supported yet")
                .hasMessageContaining("allowed: core-memory, memory, none, exclusive, topology, mig, mig-shim");
        assertThatThrownBy(() -> SharingMode.of(Map.of(Labels.SHARE, "all")))
                .hasMessage("aliquot.io/share: \"all\" is unknown; allowed: core-memory, memory, none, exclusive,"
                        + " topology, mig, mig-shim");
        assertThatThrownBy(() -> SharingMode.of(Map.of(Labels.ACK_SHARE, "mps")))
                .hasMessageContaining("not supported yet; allowed: default, core_mem");
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "0", "1001", "-1", "ten", "1.5", " 5", "99999999999"})
    void rejectsSlotsOutOfRange(String text) {
        assertThatThrownBy(() -> SlotCount.parse("aliquot.io/slots", text))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining("from 1 to 1000");
    }

    @Test
    void parsesSlots() {
        assertThat(SlotCount.parse("aliquot.io/slots", "20")).isEqualTo(20);
        assertThat(SlotCount.parse("aliquot.io/slots", "1000")).isEqualTo(1000);
    }

    @Test
    void parsesTheLinksThatItPrints() {
        for (String text : List.of("nvlink1", "nvlink18", "pix", "pxb", "phb", "node", "sys")) {
            assertThat(Link.parse(text).print()).isEqualTo(text);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "nvlink", "nvlink0", "nvlink100", "NVLINK1", "pcie"})
    void rejectsUnknownLinks(String text) {
        assertThatThrownBy(() -> Link.parse(text)).isInstanceOf(FormatException.class);
    }

    @Test
    void fillsTheUuidsIntoTheTemplate() {
        String one = "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001";
        String two = "GPU-8f6e8f0c-0002-4a5b-9c3d-000000000002";

        assertThat(new VisibleDevices("{uuid}").of(List.of(one, two))).isEqualTo(one + "," + two);
        assertThat(new VisibleDevices("runtime.nvidia.com/gpu={uuid}").of(List.of(one)))
                .isEqualTo("runtime.nvidia.com/gpu=" + one);
        assertThat(VisibleDevices.BY_ALLOCATE.of(List.of(one, two))).isEqualTo("void");
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "uuid", "{uuid},{uuid}", "{uuid}\n", "a b{uuid}", "none"})
    void rejectsATemplateWithoutAUuid(String template) {
        assertThatThrownBy(() -> new VisibleDevices(template)).isInstanceOf(FormatException.class);
    }
}
