package io.aliquot.deviceplugin.metrics;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import org.junit.jupiter.api.Test;

final class MonitoringServerTest {
    private final HttpClient client = HttpClient.newHttpClient();
    private final AgentMetrics metrics = new AgentMetrics();

    @Test
    void healthIsWhatTheProcessSaysOfItself() throws Exception {
        try (var monitoring = new MonitoringServer(0, metrics, () -> "", () -> "waiting for the kubelet")) {
            assertThat(get(monitoring, "/livez").statusCode()).isEqualTo(200);
            assertThat(get(monitoring, "/readyz").statusCode()).isEqualTo(503);
            assertThat(get(monitoring, "/readyz").body()).isEqualTo("waiting for the kubelet\n");
        }
    }

    @Test
    void metricsAreInPrometheussTextFormat() throws Exception {
        metrics.allocated(700_000);
        try (var monitoring = new MonitoringServer(0, metrics, () -> "", () -> "")) {
            HttpResponse<String> answer = get(monitoring, "/metrics");

            assertThat(answer.headers().firstValue("Content-Type"))
                    .hasValueSatisfying(type -> assertThat(type).startsWith("text/plain; version=0.0.4"));
            assertThat(answer.body()).contains("aliquot_agent_allocate_seconds_bucket{le=\"0.001\"} 1");
        }
    }

    @Test
    void otherPathsAndMethodsAreRefused() throws Exception {
        try (var monitoring = new MonitoringServer(0, metrics, () -> "", () -> "")) {
            assertThat(get(monitoring, "/").statusCode()).isEqualTo(404);
            var post = HttpRequest.newBuilder(uri(monitoring, "/metrics"))
                    .POST(HttpRequest.BodyPublishers.ofString("x"))
                    .build();
            assertThat(client.send(post, HttpResponse.BodyHandlers.ofString()).statusCode())
                    .isEqualTo(405);
        }
    }

    @Test
    void aPortThatIsTakenIsSaidWithTheSettingToChange() throws Exception {
        try (var monitoring = new MonitoringServer(0, metrics, () -> "", () -> "")) {
            assertThatThrownBy(() -> new MonitoringServer(monitoring.port(), metrics, () -> "", () -> ""))
                    .hasMessageContaining("port " + monitoring.port())
                    .hasMessageContaining("ALIQUOT_METRICS_PORT");
        }
    }

    private HttpResponse<String> get(MonitoringServer monitoring, String path) throws Exception {
        return client.send(HttpRequest.newBuilder(uri(monitoring, path)).build(), HttpResponse.BodyHandlers.ofString());
    }

    private static URI uri(MonitoringServer monitoring, String path) {
        return URI.create("http://localhost:" + monitoring.port() + path);
    }
}
