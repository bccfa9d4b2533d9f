package io.aliquot.lab.chart;

import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** That each value of the chart has an effect and a line in the chart's README. */
class ValuesTest {
    private static final KubernetesSerialization YAML = new KubernetesSerialization();
    private static final Map<String, Object> DEFAULTS = read(Chart.FOLDER.resolve("values.yaml"));
    /** What the chart renders of values, or why it refuses them. */
    private static final Map<Map<String, Object>, String> RENDERED = new HashMap<>();

    /** No value of users. */
    private static final String VERSION = "valuesVersion";

    private static final Pattern ROW = Pattern.compile("(?m)^\\|.*\\| `([A-Za-z.]+)` \\| `(.*)` \\|$");

    private final Path file;

    ValuesTest(@TempDir Path folder) {
        file = folder.resolve("values.yaml");
    }

    /** The paths of all values, such as {@code scheduler.image.tag}. */
    static List<String> paths() {
        return paths(DEFAULTS);
    }

    private static List<String> paths(Map<String, Object> values) {
        return leaves(values).keySet().stream()
                .filter(path -> !path.equals(VERSION))
                .toList();
    }

    /** Otherwise {@code helm upgrade --reuse-values} from the earlier chart ends with a list of what its values lack. */
    @Test
    void theVersionOfTheValuesChangesWithTheirNames() {
        Map<String, Object> earlier = parse(Chart.earlierValues());

        if (!paths(earlier).equals(paths())) {
            assertThat(DEFAULTS.get(VERSION))
                    .as(VERSION + ", since the earlier chart's values have other names; also in values.schema.json and"
                            + " templates/refusals/first")
                    .isNotEqualTo(earlier.get(VERSION));
        }
    }

    /** One that a scenario sets and that changes nothing is read by no template. */
    @ParameterizedTest
    @MethodSource("paths")
    void aScenarioSetsTheValueAndTheChartReadsIt(String path) {
        List<Map<String, Object>> scenarios = Chart.scenarios().stream()
                .map(ValuesTest::read)
                .filter(scenario -> get(scenario, path) != null)
                .toList();

        assertThat(scenarios).as("scenarios in ci/ that set it").isNotEmpty();
        assertThat(scenarios)
                .allSatisfy(scenario -> assertThat(get(scenario, path)).isNotEqualTo(get(DEFAULTS, path)))
                .anyMatch(scenario -> !rendered(only(scenario, path)).equals(rendered(Map.of()))
                        || !rendered(without(scenario, path)).equals(rendered(scenario)));
    }

    @Test
    void theReadmeListsEachValueOnceWithItsDefault() throws IOException {
        List<MatchResult> rows = ROW.matcher(Files.readString(Chart.FOLDER.resolve("README.md")))
                .results()
                .toList();

        assertThat(rows.stream().map(row -> row.group(1))).containsExactlyInAnyOrderElementsOf(paths());
        assertThat(rows)
                .allSatisfy(row -> assertThat(parse("value: " + row.group(2)))
                        .as(row.group(1))
                        .containsEntry("value", get(DEFAULTS, row.group(1))));
    }

    private static Map<String, Object> leaves(Map<String, Object> values) {
        var leaves = new LinkedHashMap<String, Object>();
        values.forEach((key, value) -> {
            if (value instanceof Map<?, ?> map && !map.isEmpty() && !key.equals("resources")) {
                leaves(asMap(map)).forEach((path, leaf) -> leaves.put(key + "." + path, leaf));
            } else {
                leaves.put(key, value);
            }
        });
        return leaves;
    }

    private static @Nullable Object get(Map<String, Object> values, String path) {
        @Nullable Object value = values;
        for (String key : path.split("\\.", -1)) {
            value = value instanceof Map<?, ?> map ? map.get(key) : null;
        }
        return value;
    }

    private static Map<String, Object> only(Map<String, Object> values, String path) {
        List<String> keys = new ArrayList<>(List.of(path.split("\\.", -1)));
        Object value = Objects.requireNonNull(get(values, path));
        for (String key : keys.reversed()) {
            value = Map.of(key, value);
        }
        return asMap((Map<?, ?>) value);
    }

    private static Map<String, Object> without(Map<String, Object> values, String path) {
        String key = path.replaceFirst("\\..*", "");
        var copy = new LinkedHashMap<>(values);
        if (key.equals(path)) {
            copy.remove(key);
        } else {
            copy.compute(key, (name, inner) -> without(asMap((Map<?, ?>) inner), path.substring(key.length() + 1)));
        }
        return copy;
    }

    private String rendered(Map<String, Object> values) {
        return RENDERED.computeIfAbsent(values, this::render);
    }

    private String render(Map<String, Object> values) {
        try {
            Files.writeString(file, YAML.asYaml(values));
            return Chart.template().withValuesFile(file).call();
        } catch (IOException e) {
            throw new AssertionError(e);
        } catch (RuntimeException e) {
            return String.valueOf(e.getMessage());
        }
    }

    private static Map<String, Object> read(Path file) {
        try {
            return parse(Files.readString(file));
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    private static Map<String, Object> parse(String yaml) {
        return asMap(YAML.unmarshal(yaml, Map.class));
    }

    private static Map<String, Object> asMap(Map<?, ?> map) {
        return map.entrySet().stream()
                .collect(Collectors.toMap(
                        entry -> (String) entry.getKey(), Map.Entry::getValue, (a, b) -> a, LinkedHashMap::new));
    }
}
