package io.aliquot.deviceplugin.node;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.FormatException;
import java.util.Map;
import org.junit.jupiter.api.Test;

final class NodeWishesTest {
    @Test
    void theNodesSlotsBeatTheDefault() {
        assertThat(NodeWishes.parse(node(Map.of(), Map.of()), 10).slots()).isEqualTo(10);
        assertThat(NodeWishes.parse(node(Map.of(), Map.of("aliquot.io/slots", "20")), 10)
                        .slots())
                .isEqualTo(20);
    }

    @Test
    void whatIsNotSupportedYetIsRefusedAndNeverIgnored() {
        for (String key : new String[] {"aliquot.io/memory-scaling", "aliquot.io/core-scaling"}) {
            assertThatThrownBy(() -> NodeWishes.parse(node(Map.of(), Map.of(key, "1")), 10))
                    .isInstanceOf(FormatException.class)
                    .hasMessage(key + " is not supported yet; allowed on a node: aliquot.io/slots");
        }
        assertThatThrownBy(() -> NodeWishes.parse(node(Map.of("aliquot.io/share", "mig"), Map.of()), 10))
                .hasMessageContaining("not supported yet")
                .hasMessageContaining("allowed: core-memory, memory");
    }

    @Test
    void everythingRefusedIsSaidAtOnce() {
        assertThatThrownBy(() -> NodeWishes.parse(
                        node(
                                Map.of("aliquot.io/share", "everything"),
                                Map.of("aliquot.io/slots", "many", "aliquot.io/core-scaling", "2")),
                        10))
                .hasMessageContaining("core-scaling")
                .hasMessageContaining("\"everything\" is unknown")
                .hasMessageContaining("\"many\" is not a number of slots");
    }

    private static NodeView node(Map<String, String> labels, Map<String, String> annotations) {
        return new NodeView(labels, annotations, Map.of(), Map.of());
    }
}
