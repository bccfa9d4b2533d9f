package io.aliquot.deviceplugin.node;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.nodes.Scaling;
import java.util.Map;
import org.junit.jupiter.api.Test;

final class NodeSettingsTest {
    @Test
    void theSlotsAnnotationOverridesTheDefault() {
        assertThat(NodeSettings.parse(node(Map.of(), Map.of()), 10).slots()).isEqualTo(10);
        assertThat(NodeSettings.parse(node(Map.of(), Map.of("aliquot.io/slots", "20")), 10)
                        .slots())
                .isEqualTo(20);
    }

    @Test
    void scalingsAreOneByDefault() {
        assertThat(NodeSettings.parse(node(Map.of(), Map.of()), 10))
                .isEqualTo(new NodeSettings(10, Scaling.ONE, Scaling.ONE));
        assertThat(NodeSettings.parse(
                        node(Map.of(), Map.of("aliquot.io/memory-scaling", "1.5", "aliquot.io/core-scaling", "2")), 10))
                .isEqualTo(new NodeSettings(10, new Scaling(150), new Scaling(200)));
    }

    @Test
    void anUnsupportedSharingModeIsInvalid() {
        assertThatThrownBy(() -> NodeSettings.parse(node(Map.of("aliquot.io/share", "mps"), Map.of()), 10))
                .hasMessageContaining("not supported yet")
                .hasMessageContaining("allowed: core-memory");
    }

    @Test
    void reportsAllInvalidValues() {
        assertThatThrownBy(() -> NodeSettings.parse(
                        node(
                                Map.of("aliquot.io/share", "everything"),
                                Map.of("aliquot.io/slots", "many", "aliquot.io/core-scaling", "double")),
                        10))
                .hasMessageContaining("core-scaling")
                .hasMessageContaining("\"everything\" is unknown")
                .hasMessageContaining("\"many\" is not a number of slots");
    }

    private static NodeView node(Map<String, String> labels, Map<String, String> annotations) {
        return new NodeView(labels, annotations, Map.of(), Map.of(), Map.of(), "");
    }
}
