package io.aliquot.scheduler.extender;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.json.JsonMapper;

class NodeNamesTest {
    private static final JsonMapper JSON = JsonMapper.shared();
    private static final WireReader READER = new WireReader();

    private static List<String> read(String names) {
        return read(READER, names);
    }

    private static List<String> read(WireReader reader, String names) {
        String args = "{\"Pod\": " + World.podJson("a", "\"x/y\": \"1\"", "") + ", \"NodeNames\": " + names + "}";
        return reader.args(new ByteArrayInputStream(args.getBytes(StandardCharsets.UTF_8)))
                .nodeNames()
                .orElse(List.of("none"));
    }

    @Test
    void aNameThatWasReadBeforeIsTheSameObject() {
        assertThat(read("[\"gpu-node-1\"]").get(0))
                .isSameAs(read("[\"x\", \"gpu-node-1\"]").get(1));
    }

    @ParameterizedTest
    @ValueSource(strings = {"gpu-node-%05d", "node-%d", "ip-10-0-%d.eu-west-1.compute.internal", "gpu-%x-a"})
    void alikeNamesDoNotTakeEachOthersPlaces(String pattern) {
        var reader = new WireReader();
        List<String> names =
                IntStream.range(0, 5000).mapToObj(pattern::formatted).toList();
        assertThat(strangers(reader, names)).isEqualTo(5000);
        assertThat(strangers(reader, names)).isZero();
    }

    @Test
    void namesThatComeAgainFindAPlaceHoweverManyOthersThereWere() {
        var reader = new WireReader();
        strangers(
                reader,
                IntStream.range(0, 200_000).mapToObj(number -> "gone-" + number).toList());
        List<String> names =
                IntStream.range(0, 5000).mapToObj(number -> "here-" + number).toList();
        for (int i = 0; i < 20; i++) {
            strangers(reader, names);
        }
        assertThat(strangers(reader, names)).isLessThan(50);
    }

    private final Set<String> objects = Collections.newSetFromMap(new IdentityHashMap<>());

    /** How many of these names are read as an object that was never seen. */
    private long strangers(WireReader reader, List<String> names) {
        return read(reader, JSON.writeValueAsString(names)).stream()
                .filter(objects::add)
                .count();
    }

    @Test
    void whateverWasReadBeforeNamesAreRead() {
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
    void namesWithTheSameHashAreToldApart() {
        assertThat("AaAa".hashCode()).isEqualTo("BBBB".hashCode());
        assertThat(read("[\"AaAa\", \"BBBB\", \"AaBB\", \"AaAa\"]")).containsExactly("AaAa", "BBBB", "AaBB", "AaAa");
    }

    @Test
    void noListIsNoNamesAndAnythingElseIsRefused() {
        assertThat(read("null")).containsExactly("none");
        for (String wrong : List.of("{}", "\"a\"", "[1]", "[null]", "[[\"a\"]]")) {
            assertThatThrownBy(() -> read(wrong)).as(wrong).isInstanceOf(JacksonException.class);
        }
    }
}
