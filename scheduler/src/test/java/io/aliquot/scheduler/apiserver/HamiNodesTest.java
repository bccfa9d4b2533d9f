package io.aliquot.scheduler.apiserver;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import org.junit.jupiter.api.Test;

class HamiNodesTest {
    private final HamiNodes nodes = new HamiNodes();

    @Test
    void aLineOfReadyzNamesTheNodesThatHamiServesAndNothingWaitsForThem() {
        assertThat(nodes.remark()).isEmpty();

        List.of("n4", "n1", "n3", "n2").forEach(node -> nodes.put(node, true));

        assertThat(nodes.remark())
                .hasValueSatisfying(line ->
                        assertThat(line).contains("the GPUs of 4 nodes", "n1, n2, n3, …", "chart value nodeLabel"));
        assertThat(nodes.waitsFor()).isEmpty();
        List.of("n1", "n2", "n3", "n4").forEach(node -> nodes.put(node, false));
        assertThat(nodes.remark()).isEmpty();
    }
}
