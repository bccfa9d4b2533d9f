package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Pod;
import java.nio.file.Files;
import java.time.Duration;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The exported metrics are those that the docs list. */
@ExtendWith(LabExtension.class)
class MetricsIT {
    private static final Pattern DOCUMENTED = Pattern.compile("`(aliquot_[a-z_]+)`");
    private static final Pattern SCRAPED = Pattern.compile("(?m)^# TYPE (aliquot_[a-z_]+) ");

    @ParameterizedTest
    @CsvSource({"scheduler, 9090, ## Scheduler", "device-plugin, 9091, ## Node agent"})
    void theDocsListExactlyTheExportedMetrics(
            String component, int port, String heading, Lab lab, TestNamespace namespace) throws Exception {
        new SchedulerReplicas(lab).awaitReady(Duration.ofMinutes(4)); // an earlier test may have killed one
        namespace.run(Pods.withGpuMemory(lab, "measured", 1000));
        var scraped = new TreeSet<String>();
        for (Pod pod : lab.componentPods(component)) {
            scraped.addAll(typesOf(Lab.metrics(pod, port)));
        }

        Set<String> documented = new TreeSet<>();
        Set<String> absentAtFirst = new TreeSet<>();
        String docs = Files.readString(lab.root().resolve("docs").resolve("metrics.md"));
        docs.substring(docs.indexOf(heading), docs.indexOf("\n## ", docs.indexOf(heading) + 1))
                .lines()
                .filter(line -> line.startsWith("| `aliquot_"))
                .forEach(row -> addNames(row, row.contains("ot there before the first") ? absentAtFirst : documented));

        assertThat(scraped).containsAll(documented);
        documented.addAll(absentAtFirst);
        scraped.removeIf(name -> name.endsWith("_max")); // the maximum of a histogram, as the docs say
        assertThat(documented).containsAll(scraped);
    }

    private static void addNames(String row, Set<String> names) {
        DOCUMENTED.matcher(row.substring(0, row.indexOf('|', 1))).results().forEach(match -> names.add(match.group(1)));
    }

    private static Set<String> typesOf(String metrics) {
        var names = new TreeSet<String>();
        SCRAPED.matcher(metrics).results().forEach(match -> names.add(match.group(1)));
        return names;
    }
}
