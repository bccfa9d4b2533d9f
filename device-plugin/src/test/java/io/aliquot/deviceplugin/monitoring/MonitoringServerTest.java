package io.aliquot.deviceplugin.monitoring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.deviceplugin.metrics.AgentMetrics;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

final class MonitoringServerTest {
    private final HttpClient client = HttpClient.newHttpClient();
    private final AgentMetrics metrics = new AgentMetrics();

    @Test
    void probesReportTheProblemsOfTheProcess() throws Exception {
        try (var server =
                new MonitoringServer(0, metrics, List::of, () -> List.of("no kubelet", "no NVML"), () -> false)) {
            assertThat(get(server, "/livez").statusCode()).isEqualTo(200);
            assertThat(get(server, "/readyz").statusCode()).isEqualTo(503);
            assertThat(get(server, "/readyz").body()).isEqualTo("no kubelet\nno NVML\n");
        }
    }

    @Test
    void printsMetricsInPrometheusTextFormat() throws Exception {
        metrics.allocateAnswered(Duration.ofNanos(700_000));
        try (var server = new MonitoringServer(0, metrics, List::of, List::of, () -> true)) {
            HttpResponse<String> answer = get(server, "/metrics");

            assertThat(answer.headers().firstValue("Content-Type"))
                    .hasValueSatisfying(type -> assertThat(type).startsWith("text/plain; version=0.0.4"));
            assertThat(answer.body()).contains("aliquot_agent_allocate_duration_seconds_bucket{le=\"0.001\"} 1");
        }
    }

    @Test
    void refusesOtherPathsAndMethods() throws Exception {
        try (var server = new MonitoringServer(0, metrics, List::of, List::of, () -> true)) {
            assertThat(get(server, "/").statusCode()).isEqualTo(404);
            var post = HttpRequest.newBuilder(uri(server, "/metrics"))
                    .POST(HttpRequest.BodyPublishers.noBody())
                    .build();
            assertThat(client.send(post, HttpResponse.BodyHandlers.ofString()).statusCode())
                    .isEqualTo(405);
        }
    }

    @Test
    void aPortInUseIsReportedWithTheSettingToChange() throws Exception {
        try (var server = new MonitoringServer(0, metrics, List::of, List::of, () -> true)) {
            assertThatThrownBy(() -> new MonitoringServer(server.port(), metrics, List::of, List::of, () -> true))
                    .hasMessageContaining("port " + server.port())
                    .hasMessageContaining("ALIQUOT_METRICS_PORT");
        }
    }

    private HttpResponse<String> get(MonitoringServer server, String path) throws Exception {
        return client.send(HttpRequest.newBuilder(uri(server, path)).build(), HttpResponse.BodyHandlers.ofString());
    }

    private static URI uri(MonitoringServer server, String path) {
        return URI.create("http://localhost:" + server.port() + path);
    }
}
