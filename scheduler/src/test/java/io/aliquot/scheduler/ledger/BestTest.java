package io.aliquot.scheduler.ledger;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class BestTest {
    private static final Comparator<Node> BETTER_FIRST =
            Comparator.comparingDouble(Node::liking).reversed().thenComparing(Node::name);

    private record Node(String name, double liking) {}

    private static boolean better(Node one, Node other) {
        return BETTER_FIRST.compare(one, other) < 0;
    }

    @Test
    void ofEquallyLikedOnesTheFirstByNameIsBetter() {
        var best = new Best();
        best.begin(2);
        best.add("b", 0.5);
        best.add("c", 0.5);
        best.add("a", 0.5);
        assertThat(best.sorted()).containsExactly("a", "b");
    }

    @Test
    void itKeepsWhatSortingEverythingWouldPutFirst() {
        long seed = new Random().nextLong();
        var random = new Random(seed);
        var best = new Best();
        for (int round = 0; round < 2000; round++) {
            int most = 1 + random.nextInt(20);
            best.begin(most);
            List<Node> nodes = new ArrayList<>();
            int count = random.nextInt(60);
            for (int i = 0; i < count; i++) {
                var node = new Node("n" + i, random.nextInt(10) / 10.0);
                nodes.add(node);
                if (!best.takes(node.name(), node.liking())) {
                    assertThat(nodes.stream().filter(one -> better(one, node))).hasSizeGreaterThanOrEqualTo(most);
                    continue;
                }
                best.add(node.name(), node.liking());
            }
            nodes.sort(BETTER_FIRST);
            assertThat(best.sorted())
                    .as("seed %d, round %d", seed, round)
                    .isEqualTo(nodes.stream().limit(most).map(Node::name).toList());
        }
    }
}
