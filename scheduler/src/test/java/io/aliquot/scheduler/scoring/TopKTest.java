package io.aliquot.scheduler.scoring;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class TopKTest {
    private static final Comparator<Node> BETTER_FIRST =
            Comparator.comparingDouble(Node::score).reversed().thenComparing(Node::rank);

    private record Node(int index, int rank, double score) {}

    private static boolean better(Node one, Node other) {
        return BETTER_FIRST.compare(one, other) < 0;
    }

    @Test
    void ofEqualScoresTheFirstByRankIsBetter() {
        var best = new TopK();
        best.reset(2);
        best.add(0, 7, 0.5);
        best.add(1, 9, 0.5);
        best.add(2, 3, 0.5);
        assertThat(best.sorted(List.of("b", "c", "a"))).containsExactly("a", "b");
    }

    @Test
    void itKeepsTheFirstOfTheSortedNodes() {
        long seed = new Random().nextLong();
        var random = new Random(seed);
        var best = new TopK();
        for (int round = 0; round < 2000; round++) {
            int most = 1 + random.nextInt(20);
            best.reset(most);
            List<Node> nodes = new ArrayList<>();
            int count = random.nextInt(60);
            List<Integer> ranks =
                    random.ints(0, 1000).distinct().limit(count).boxed().toList();
            List<String> names =
                    IntStream.range(0, count).mapToObj(i -> "n" + i).toList();
            for (int i = 0; i < count; i++) {
                var node = new Node(i, ranks.get(i), random.nextInt(10) / 10.0);
                nodes.add(node);
                if (!best.accepts(node.rank(), node.score())) {
                    assertThat(nodes.stream().filter(one -> better(one, node))).hasSizeGreaterThanOrEqualTo(most);
                    continue;
                }
                best.add(i, node.rank(), node.score());
            }
            nodes.sort(BETTER_FIRST);
            assertThat(best.sorted(names))
                    .as("seed %d, round %d", seed, round)
                    .isEqualTo(nodes.stream()
                            .limit(most)
                            .map(node -> names.get(node.index()))
                            .toList());
        }
    }
}
