package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Pod;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
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
    @CsvSource({"scheduler, 9090", "device-plugin, 9091"})
    void theDocsListExactlyTheExportedMetrics(String component, int port, Lab lab, TestNamespace namespace)
            throws Exception {
        new SchedulerReplicas(lab).awaitReady(Duration.ofMinutes(4)); // an earlier test may have killed one
        namespace.run(Pods.withGpuMemory(lab, "measured", 1000));
        var scraped = new TreeSet<String>();
        for (Pod pod : lab.componentPods(component)) {
            scraped.addAll(scrape(pod, port));
        }

        Set<String> documented = new TreeSet<>();
        Set<String> absentAtFirst = new TreeSet<>();
        Files.readString(lab.root().resolve("docs").resolve("metrics.md"))
                .lines()
                .filter(line -> line.startsWith("| `aliquot_"))
                .filter(line -> line.startsWith("| `aliquot_agent_") == component.equals("device-plugin"))
                .forEach(row -> addNames(row, row.contains("not there before the first") ? absentAtFirst : documented));

        assertThat(scraped).containsAll(documented);
        documented.addAll(absentAtFirst);
        scraped.removeIf(name -> name.endsWith("_max")); // the maximum of a histogram, as the docs say
        assertThat(documented).containsAll(scraped);
    }

    private static void addNames(String row, Set<String> names) {
        DOCUMENTED
                .matcher(row.substring(0, row.indexOf('|', 1)))
                .results()
                .map(match -> match.group(1))
                .forEach(name -> {
                    names.add(name);
                    if (name.startsWith("aliquot_gpu_")) { // also per node, as the docs say
                        names.add(name.replace("aliquot_gpu_", "aliquot_node_gpu_"));
                    }
                });
    }

    private static Set<String> scrape(Pod pod, int port) throws IOException, InterruptedException {
        URI uri = URI.create("http://" + pod.getStatus().getPodIP() + ":" + port + "/metrics");
        String text = HttpClient.newHttpClient()
                .send(HttpRequest.newBuilder(uri).build(), BodyHandlers.ofString())
                .body();
        var names = new TreeSet<String>();
        SCRAPED.matcher(text).results().forEach(match -> names.add(match.group(1)));
        return names;
    }
}
