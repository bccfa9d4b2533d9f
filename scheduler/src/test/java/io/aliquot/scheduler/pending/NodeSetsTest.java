package io.aliquot.scheduler.pending;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.pending.NodeSets.NodeSet;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class NodeSetsTest {
    private final NodeSets sets = new NodeSets();

    @Test
    void equalSetsAreTheSameObject() {
        assertThat(sets.of(List.of("a", "b"))).isSameAs(sets.of(List.of("b", "a")));
        assertThat(sets.of(List.of("a", "b"))).isNotEqualTo(sets.of(List.of("a")));
        assertThat(sets.everywhere()).isNotEqualTo(sets.of(List.of()));
    }

    @Test
    void aSetContainsItsNodes() {
        NodeSet some = sets.of(List.of("b", "a"));
        assertThat(some.names()).containsExactlyInAnyOrder("a", "b");
        assertThat(some.contains("a")).isTrue();
        assertThat(some.contains("c")).isFalse();
        assertThat(sets.everywhere().contains("c")).isTrue();
        assertThat(sets.everywhere().names()).isEmpty();
    }

    /** Autoscalers give every node a new name. */
    @Test
    void unusedNamesAreEvictedAndOlderSetsStayValid() {
        NodeSet before = sets.of(List.of("a", "b"));
        for (int day = 0; day < 40; day++) {
            int today = day;
            sets.of(IntStream.range(0, 1000).mapToObj(i -> today + "-" + i).toList());
        }
        NodeSet after = sets.of(List.of("b", "a"));
        assertThat(after).as("with other indexes").isNotEqualTo(before);
        for (NodeSet set : List.of(before, after)) {
            assertThat(set.names()).containsExactlyInAnyOrder("a", "b");
            assertThat(set.contains("a")).isTrue();
            assertThat(set.contains("39-0")).isFalse();
        }
    }
}
