package io.aliquot.lab.chart;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.testing.ApiServer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.io.TempDir;

/** What kube-score calls critical of the chart's pods is what the chart's README gives a reason for. */
@Tag("long")
@EnabledIfEnvironmentVariable(named = "ALIQUOT_LONG", matches = "1")
class KubeScoreIT {
    /** A line of kube-score's; a Job's name has a hash. */
    private static final Pattern CRITICAL =
            Pattern.compile("(?m)^\\[CRITICAL\\] (\\S+?)(-[0-9a-f]{10})?/aliquot \\S+: (?:\\((\\S+)\\) )?(.*)$");

    private static final Pattern ROW = Pattern.compile("(?m)^\\| `([^`]*)` \\| ([^|]*) \\| [^|]+ \\|$");

    @Test
    void theReadmeNamesEachCriticalLineAndNoOther(@TempDir Path folder) throws Exception {
        Path manifests = Files.writeString(
                folder.resolve("manifests.yaml"), Chart.template().call());
        String readme = Files.readString(Chart.FOLDER.resolve("README.md"));
        String section = readme.substring(readme.indexOf("\n## What kube-score says"));

        Map<String, Set<String>> documented = new TreeMap<>();
        ROW.matcher(section)
                .results()
                .forEach(row -> documented.put(
                        row.group(1), new TreeSet<>(List.of(row.group(2).split(", ", -1)))));

        assertThat(criticals(folder, manifests)).isNotEmpty().isEqualTo(documented);
    }

    /** The objects, or their containers where the line names one, by what it says of them. */
    private static Map<String, Set<String>> criticals(Path folder, Path manifests) throws Exception {
        var kubeScore = new Program(ApiServer.programs("chart_programs").resolve("kube-score"), folder.resolve("none"));
        // It fails where it finds something critical.
        String lines = kubeScore.runWithStatus(1, "score", "--output-format", "ci", manifests.toString());
        Map<String, Set<String>> criticals = new TreeMap<>();
        CRITICAL.matcher(lines).results().forEach(line -> {
            String of = line.group(3) == null ? line.group(1) : line.group(3);
            criticals.computeIfAbsent(line.group(4), unused -> new TreeSet<>()).add(of);
        });
        return criticals;
    }
}
