package io.aliquot.scheduler.extensionapi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.scheduler.cluster.LabelSelector;
import io.aliquot.scheduler.extensionapi.machinery.Patch;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.extensionapi.objects.ShareChanges;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** Random patches and selectors of users. A failure prints the seed, and {@code -Daliquot.seed=…} repeats it. */
class PatchTest {
    private static final String MERGE = "application/merge-patch+json";
    private static final JsonNode SHARE = JsonMapper.shared().readTree("""
            {"kind": "GpuShare", "metadata": {"name": "train", "resourceVersion": "7"},
             "spec": {"containers": [{"name": "main", "memoryMiB": 15000, "cores": 20, "policy": "fixed"}]},
             "status": {"phase": "Bound"}}""");

    private static final List<String> PIECES = List.of(
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            "\"",
            "null",
            "1",
            "-1",
            "1e999999999",
            "true",
            "\"a\"",
            "\"spec\"",
            "\"containers\"",
            "\"name\":\"main\"",
            "\"memoryMiB\":1",
            "\"metadata\":{\"resourceVersion\":",
            "\u0000",
            "é",
            "a",
            "!",
            "=",
            "==",
            "in",
            " ",
            "(",
            ")",
            "notin",
            "/",
            ".",
            "-");

    @Test
    void aPatchIsAppliedOrRefused() {
        String valid =
                "{\"metadata\":{\"resourceVersion\":\"7\"},\"spec\":{\"containers\":[{\"name\":\"main\",\"cores\":1}]}}";
        randomly(20_000, random -> {
            byte[] patch = damaged(random, valid).getBytes(StandardCharsets.UTF_8);
            try {
                JsonNode after = Patch.apply(MERGE, patch, SHARE);
                if (Patch.namesVersion(patch)) {
                    var unused = ShareChanges.requiredVersion("train", after);
                }
                assertThat(ShareChanges.between("train", SHARE, after)).hasSizeLessThan(2);
            } catch (StatusException e) {
                assertThat(e.getStatusCode().value()).isIn(400, 422);
            }
        });
    }

    @Test
    void aDeepPatchIsRefused() {
        byte[] deep = ("{\"a\":".repeat(1000) + "1" + "}".repeat(1000)).getBytes(StandardCharsets.UTF_8);
        assertThatThrownBy(() -> Patch.apply(MERGE, deep, SHARE)).isInstanceOf(StatusException.class);
    }

    @Test
    void aSelectorIsReadOrRefused() {
        randomly(20_000, random -> {
            try {
                var unused = LabelSelector.parse(damaged(random, "app=train,tier in (a, b),!canary,x/y notin (c)"));
            } catch (FormatException e) {
                assertThat(e.getMessage()).isNotEmpty();
            }
        });
    }

    private interface Check {
        void on(Random random);
    }

    private static void randomly(int times, Check check) {
        long first = Long.getLong("aliquot.seed", System.nanoTime());
        for (long seed = first; seed < first + times; seed++) {
            try {
                check.on(new Random(seed));
            } catch (RuntimeException | AssertionError e) {
                throw new AssertionError("with -Daliquot.seed=" + seed, e);
            }
        }
    }

    private static String damaged(Random random, String example) {
        var text = new StringBuilder(example);
        int changes = random.nextInt(4);
        for (int i = 0; i < changes; i++) {
            int from = random.nextInt(text.length() + 1);
            int to = Math.min(text.length(), from + random.nextInt(12));
            text.replace(from, random.nextBoolean() ? to : from, PIECES.get(random.nextInt(PIECES.size())));
        }
        return text.toString();
    }
}
