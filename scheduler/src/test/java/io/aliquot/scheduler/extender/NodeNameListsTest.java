package io.aliquot.scheduler.extender;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.json.JsonMapper;

class NodeNameListsTest {
    private static final JsonMapper JSON = JsonMapper.shared();
    private static final JsonMapper READER = Wire.mapper();

    private static List<String> read(String names) {
        return read(READER, names);
    }

    private static List<String> read(JsonMapper reader, String names) {
        String args =
                "{\"Pod\": " + ExtenderFixture.podJson("a", "\"x/y\": \"1\"", "") + ", \"NodeNames\": " + names + "}";
        return reader.readValue(args.getBytes(StandardCharsets.UTF_8), Wire.Args.class)
                .nodeNames()
                .orElse(List.of("none"));
    }

    @Test
    void namesAreReadCorrectlyWhateverTheCacheHolds() {
        long seed = new Random().nextLong();
        var random = new Random(seed);
        for (int round = 0; round < 50; round++) {
            List<String> names = new ArrayList<>();
            for (int i = 0; i < random.nextInt(3000); i++) {
                names.add(random.nextInt(4) == 0 ? "node-\u00e9\"\\\n" + i : "n" + random.nextInt(100_000));
            }
            assertThat(read(JSON.writeValueAsString(names))).as("seed %d", seed).isEqualTo(names);
        }
    }

    @Test
    void theSameNamesInAnyOrderAreTheSameList() {
        var reader = Wire.mapper();
        List<String> names = read(reader, "[\"a\", \"b\", \"c\"]");
        assertThat(read(reader, "[\"c\", \"a\", \"b\"]")).isSameAs(names);
        assertThat(read(reader, "[\"c\", \"b\"]")).containsExactly("c", "b");
        assertThat(read(reader, "[\"c\", \"a\", \"b\", \"a\"]")).containsExactlyInAnyOrder("a", "a", "b", "c");
        assertThat(read(reader, "[\"ab\", \"c\"]")).containsExactly("ab", "c");
        assertThat(read(reader, "[\"a\", \"bc\"]")).containsExactly("a", "bc");
        assertThat(read(reader, "[]")).isEmpty();
        assertThat(read(reader, "[\"\"]")).containsExactly("");
    }

    @Test
    void concurrentRequestsReadTheirOwnNames() {
        var reader = Wire.mapper();
        IntStream.range(0, 2000).parallel().forEach(i -> {
            List<String> names = IntStream.rangeClosed(0, i % 50)
                    .mapToObj(name -> "n" + i % 70 + "-" + name)
                    .toList();
            assertThat(read(reader, JSON.writeValueAsString(names))).containsExactlyElementsOf(names);
        });
    }

    @Test
    void namesAreReadAndCachedInAnyOrder() {
        long seed = new Random().nextLong();
        var random = new Random(seed);
        var reader = Wire.mapper();
        // some 250 lists of 100 names fit into the cache; a full cache may drop the list that was just read
        List<String> nodes = new ArrayList<>(
                IntStream.range(0, 100).mapToObj(i -> "gpu-" + i * i).toList());
        for (int round = 0; round < 500; round++) {
            if (random.nextInt(150) == 0) {
                Collections.shuffle(nodes, random);
            }
            List<String> some = random.nextInt(2) == 0
                    ? new ArrayList<>(nodes)
                    : new ArrayList<>(
                            nodes.stream().filter(any -> random.nextInt(4) > 0).toList());
            List<String> first = read(reader, JSON.writeValueAsString(some));
            assertThat(first).as("seed %d, round %d", seed, round).containsExactlyInAnyOrderElementsOf(some);
            Collections.shuffle(some, random);
            assertThat(read(reader, JSON.writeValueAsString(some)))
                    .as("seed %d, round %d", seed, round)
                    .isSameAs(first);
        }
    }

    @Test
    void namesWithTheSameHashAreDistinguished() {
        assertThat("AaAa".hashCode()).isEqualTo("BBBB".hashCode());
        assertThat(read("[\"AaAa\", \"BBBB\", \"AaBB\", \"AaAa\"]")).containsExactly("AaAa", "BBBB", "AaBB", "AaAa");
    }

    @Test
    void nullMeansNoNamesAndOtherValuesAreRefused() {
        assertThat(read("null")).containsExactly("none");
        for (String wrong : List.of("{}", "\"a\"", "[1]", "[null]", "[[\"a\"]]")) {
            assertThatThrownBy(() -> read(wrong)).as(wrong).isInstanceOf(JacksonException.class);
        }
    }
}
