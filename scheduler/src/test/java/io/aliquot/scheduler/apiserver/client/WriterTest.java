package io.aliquot.scheduler.apiserver.client;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.net.httpserver.HttpServer;
import io.aliquot.scheduler.cluster.Cluster.WriteOutcome;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** {@code KubernetesClusterTest} has the rest. */
class WriterTest {
    private final List<String> queries = new CopyOnWriteArrayList<>();
    private HttpServer server;

    @BeforeEach
    void start() throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", exchange -> {
            try (exchange) {
                queries.add(exchange.getRequestURI().getQuery());
                exchange.getResponseHeaders().set("Retry-After", "1");
                exchange.sendResponseHeaders(429, -1);
            }
        });
        server.start();
    }

    @AfterEach
    void stop() {
        server.stop(0);
    }

    /**
     * Regression: a wait that took longer than asked for was followed by a request with a negative timeout. With
     * {@code timeout=0ms} the API server would apply its own.
     */
    @ParameterizedTest
    @ValueSource(longs = {-55_000_000_000L, 0, 999_999})
    void noRequestIsSentWithLessThanAMillisecondLeft(long leftNanos) {
        WriteOutcome outcome = write(leftNanos);

        assertThat(outcome).isInstanceOf(WriteOutcome.Unheard.class);
        assertThat(queries).containsExactly("timeout=5000ms");
    }

    @Test
    void aRequestIsSentWithTheTimeThatIsLeft() {
        write(900_000_000);

        assertThat(queries).containsExactly("timeout=5000ms", "timeout=900ms");
    }

    /** Writes with a timeout of 5 s, of which {@code leftNanos} are left after the wait for a busy API server. */
    private WriteOutcome write(long leftNanos) {
        Config config = new ConfigBuilder(Config.empty())
                .withMasterUrl("http://127.0.0.1:" + server.getAddress().getPort())
                .build();
        var timeout = Duration.ofSeconds(5);
        var calls = new AtomicInteger();
        // The clock stands still until the answer has come, and jumps in the wait after it.
        var writer = new Writer(
                new ApiServerClient(config),
                new KubernetesSerialization(),
                timeout,
                () -> queries.isEmpty() || calls.getAndIncrement() == 0 ? 0 : timeout.toNanos() - leftNanos);
        return writer.write("POST", "application/json", "/path", Map.of());
    }
}
