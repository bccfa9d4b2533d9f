package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.aliquot.lab.chart.Dashboards;
import io.fabric8.kubernetes.api.model.Pod;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.MissingNode;

/** A real Prometheus that scrapes the scheduler and the node agents, with the chart's recording rules. */
@ExtendWith(LabExtension.class)
class PrometheusIT {
    private static final double MIB = 1 << 20;

    @Test
    void seriesHaveTheLabelsOfTheContainersAndWhatANamespaceUsedOutlivesItsPods(
            Lab lab, TestNamespace namespace, @TempDir Path folder) throws Exception {
        Pod pod = Pods.withGpuMemory(lab, "user", 3000);
        pod.getSpec().getContainers().getFirst().setCommand(List.of("vgpu-sample", "alloc", "2000", "hold"));
        namespace.run(pod);
        try (var prometheus = new Prometheus(lab, folder)) {
            String used = "sum(aliquot_container_memory_used_bytes{namespace=\"%s\",pod=\"user\",container=\"main\"})"
                    .formatted(namespace.name());
            awaitTrue(
                    "2000 MiB and a context",
                    EVENTUALLY,
                    () -> prometheus.query(used).orElse(0) == 2256 * MIB);
            String recorded =
                    "namespace:aliquot_container_memory_used_bytes:sum{namespace=\"%s\"}".formatted(namespace.name());
            awaitTrue(
                    "it is recorded",
                    EVENTUALLY,
                    () -> prometheus.query(recorded).orElse(0) == 2256 * MIB);

            namespace.delete("user");

            awaitTrue(
                    "no series of the pod",
                    EVENTUALLY,
                    () -> prometheus.query(used).isEmpty());
            assertThat(prometheus.query("sum_over_time(" + recorded + "[1h])").orElse(0))
                    .isPositive();
        }
    }

    /** A pod with limits of memory and compute, and a GPU in use: the series that are not there before the first one. */
    @Test
    void everyQueryOfTheDashboardsReturnsData(Lab lab, TestNamespace namespace, @TempDir Path folder) throws Exception {
        Pod pod = Pods.withLimits(lab, "user", Map.of(Resources.MEMORY, "3000", Resources.CORES, "30"));
        pod.getSpec().getContainers().getFirst().setCommand(List.of("vgpu-sample", "alloc", "2000", "hold"));
        namespace.run(pod);
        try (var prometheus = new Prometheus(lab, folder)) {
            List<String> empty = Dashboards.queries("30s");
            assertThat(empty).isNotEmpty();
            long end = System.nanoTime() + EVENTUALLY.toNanos();
            while (!empty.isEmpty() && System.nanoTime() < end) {
                Thread.sleep(1000);
                empty = empty.stream()
                        .filter(query -> prometheus.result(query).isEmpty())
                        .toList();
            }
            assertThat(empty).as("queries without data").isEmpty();
        }
    }

    private static Path rules(Lab lab) {
        return lab.root().resolve("charts/aliquot/rules/usage.yaml");
    }

    /** Prometheus in the lab's network, which scrapes each second. */
    private static final class Prometheus implements AutoCloseable {
        private static final JsonMapper JSON = new JsonMapper();

        private final HttpClient http = HttpClient.newHttpClient();
        private final Process process;
        private final int port;

        Prometheus(Lab lab, Path folder) throws IOException {
            try (var free = new ServerSocket(0)) {
                port = free.getLocalPort();
            }
            Path rules = folder.resolve("rules.yaml");
            Files.writeString(rules, Files.readString(rules(lab)).replace("interval: 30s", "interval: 1s"));
            String targets = Stream.of("scheduler", "device-plugin")
                    .flatMap(component -> lab.componentPods(component).stream()
                            .map(pod -> "\"%s:%d\""
                                    .formatted(
                                            pod.getStatus().getPodIP(), component.equals("scheduler") ? 9090 : 9091)))
                    .collect(Collectors.joining(", "));
            Path configuration = Files.writeString(folder.resolve("prometheus.yaml"), """
                    global: {scrape_interval: 1s}
                    rule_files: [%s]
                    scrape_configs:
                    - {job_name: aliquot, honor_labels: true, static_configs: [{targets: [%s]}]}
                    """.formatted(rules, targets));
            process = new ProcessBuilder(
                            "prometheus",
                            "--config.file=" + configuration,
                            "--storage.tsdb.path=" + folder.resolve("data"),
                            "--web.listen-address=127.0.0.1:" + port)
                    .redirectErrorStream(true)
                    .redirectOutput(folder.resolve("log").toFile())
                    .start();
        }

        /** The value of the only series that a query returns; empty if there is none, or no answer yet. */
        OptionalDouble query(String query) {
            JsonNode result = result(query);
            assertThat(result.size()).as("series of " + query).isLessThan(2);
            return result.isEmpty()
                    ? OptionalDouble.empty()
                    : OptionalDouble.of(result.path(0).path("value").path(1).asDouble(0));
        }

        /** The series that a query returns; empty if there is none, or no answer yet. */
        JsonNode result(String query) {
            var uri = URI.create("http://127.0.0.1:" + port + "/api/v1/query?query="
                    + URLEncoder.encode(query, StandardCharsets.UTF_8));
            try {
                return JSON.readTree(http.send(HttpRequest.newBuilder(uri).build(), BodyHandlers.ofString())
                                .body())
                        .path("data")
                        .path("result");
            } catch (IOException e) {
                if (!process.isAlive()) {
                    throw new UncheckedIOException("Prometheus has ended", e);
                }
                return MissingNode.getInstance(); // it starts
            } catch (JacksonException e) {
                return MissingNode.getInstance(); // likewise
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException("interrupted during a query", e);
            }
        }

        @Override
        public void close() {
            http.close();
            process.destroyForcibly().onExit().join();
        }
    }
}
