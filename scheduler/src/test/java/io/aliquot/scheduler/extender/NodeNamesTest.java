package io.aliquot.scheduler.extender;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.json.JsonMapper;

class NodeNamesTest {
    private static final JsonMapper JSON = JsonMapper.shared();

    private static List<String> read(String names) {
        String args = "{\"Pod\": " + World.podJson("a", "\"x/y\": \"1\"", "") + ", \"NodeNames\": " + names + "}";
        return World.args(args).nodeNames().orElse(List.of("none"));
    }

    @Test
    void aNameThatWasReadBeforeIsTheSameObject() {
        assertThat(read("[\"gpu-node-1\"]").get(0))
                .isSameAs(read("[\"x\", \"gpu-node-1\"]").get(1));
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
