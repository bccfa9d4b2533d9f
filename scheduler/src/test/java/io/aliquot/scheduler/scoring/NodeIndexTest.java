package io.aliquot.scheduler.scoring;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeSet;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class NodeIndexTest {
    private final Map<String, Integer> nodes = new HashMap<>();
    private final NodeIndex index = new NodeIndex(node -> nodes.getOrDefault(node, NodeIndex.UNKNOWN));
    private final long seed = new Random().nextLong();
    private final Random random = new Random(seed);

    private void open(String node, int number) {
        nodes.put(node, number);
    }

    private void close(String node) {
        nodes.remove(node);
        index.forget(node);
    }

    private void assertRight(List<String> names) {
        int[] numbers = new int[names.size() + 1];
        int[] ranks = new int[names.size() + 1];
        index.numbers(names, numbers, ranks);
        for (int i = 0; i < names.size(); i++) {
            String name = names.get(i);
            int number = nodes.getOrDefault(name, NodeIndex.UNKNOWN);
            assertThat(numbers[i]).as("seed %d, %s", seed, name).isEqualTo(number);
            assertThat(index.number(name)).as("seed %d, %s", seed, name).isEqualTo(number);
        }
        List<Integer> byRank = IntStream.range(0, names.size())
                .boxed()
                .sorted((one, other) -> Integer.compare(ranks[one], ranks[other]))
                .toList();
        assertThat(byRank.stream().map(names::get).filter(nodes::containsKey))
                .as("seed %d", seed)
                .isSorted();
        assertThat(byRank.stream().map(names::get).dropWhile(nodes::containsKey))
                .as("those without an account come last; seed %d", seed)
                .noneMatch(nodes::containsKey);
    }

    @Test
    void numbersAndRanksAreRightAfterAnyHistory() {
        var open = new TreeSet<Integer>();
        List<String> names = new ArrayList<>(
                IntStream.range(0, 300).mapToObj(i -> "node-" + i).toList());
        List<String> some = List.of();
        for (int round = 0; round < 500; round++) {
            for (int i = random.nextInt(5); i > 0; i--) {
                String node = names.get(random.nextInt(names.size()));
                if (nodes.containsKey(node)) {
                    open.remove(nodes.get(node));
                    close(node);
                } else {
                    int number = IntStream.range(0, 400)
                            .filter(free -> !open.contains(free))
                            .findFirst()
                            .orElseThrow();
                    open.add(number);
                    open(node, number);
                }
            }
            if (random.nextInt(10) == 0) {
                Collections.shuffle(names, random);
            }
            if (random.nextInt(20) == 0) {
                names.replaceAll(String::new); // equal, and not the same
            }
            if (random.nextInt(5) == 0) {
                some = List.copyOf(names.subList(random.nextInt(10), 10 + random.nextInt(names.size() - 10)));
            }
            assertRight(some);
            assertRight(names);
        }
    }

    /** Names with one hash use each other's slots and those of neighbors; the test tries which names are neighbors. */
    @Test
    void aNameWhoseSlotWasReplacedIsForgottenToo() {
        List<String> alike = IntStream.range(0, 16)
                .mapToObj(i -> Integer.toBinaryString(16 + i).replace("0", "Aa").replace("1", "BB"))
                .toList();
        assertThat(alike).extracting(String::hashCode).containsOnly(alike.get(0).hashCode());
        for (int i = 0; i < 1000; i++) {
            var neighbor = "node-" + i;
            List<String> names = Stream.of(alike.subList(0, 7), List.of(neighbor), alike.subList(7, 16))
                    .flatMap(List::stream)
                    .toList();
            names = List.copyOf(names);
            for (int number = 0; number < names.size(); number++) {
                open(names.get(number), number);
            }
            assertRight(names);
            close(neighbor);
            assertRight(names);
            alike.forEach(this::close);
        }
    }
}
