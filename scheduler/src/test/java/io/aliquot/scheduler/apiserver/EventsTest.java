package io.aliquot.scheduler.apiserver;

import static io.aliquot.testing.Await.await;
import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.AppenderBase;
import com.sun.net.httpserver.HttpServer;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Clock;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

class EventsTest {
    private static final Node NODE = new NodeBuilder()
            .withNewMetadata()
            .withName("n1")
            .withUid("uid-n1")
            .endMetadata()
            .build();

    private final AtomicLong nanoTime = new AtomicLong();
    private final AtomicInteger requests = new AtomicInteger();
    private final List<String> lines = new CopyOnWriteArrayList<>();
    private final AppenderBase<ILoggingEvent> appender = new AppenderBase<>() {
        @Override
        protected void append(ILoggingEvent event) {
            lines.add(event.getFormattedMessage());
        }
    };
    private volatile int status = 201;
    private HttpServer server;
    private KubernetesClient client;
    private Events events;

    @BeforeEach
    void start() throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", exchange -> {
            try (exchange) {
                exchange.getRequestBody().readAllBytes();
                byte[] body = "{\"apiVersion\": \"v1\", \"kind\": \"Event\"}".getBytes(StandardCharsets.UTF_8);
                exchange.sendResponseHeaders(status, body.length);
                exchange.getResponseBody().write(body);
            } finally {
                requests.incrementAndGet();
            }
        });
        server.start();
        Config config = new ConfigBuilder(Config.empty())
                .withMasterUrl("http://127.0.0.1:" + server.getAddress().getPort())
                .withRequestRetryBackoffLimit(0)
                .build();
        client = new KubernetesClientBuilder().withConfig(config).build();
        events = new Events(client, "replica", Clock.systemUTC(), nanoTime::get);
        appender.start();
        logger().addAppender(appender);
    }

    @AfterEach
    void stop() {
        logger().detachAppender(appender);
        events.close();
        client.close();
        server.stop(0);
    }

    private static Logger logger() {
        return (Logger) LoggerFactory.getLogger(Events.class);
    }

    /** Regression: every update of a misconfigured node logged a line. */
    @Test
    void aRepeatedWarningIsLoggedOnceInTenMinutes() {
        for (int i = 0; i < 5; i++) {
            events.warn(NODE, "Reason", "a sentence");
        }
        assertThat(lines).containsExactly("Node n1: Reason a sentence");

        nanoTime.addAndGet(Duration.ofMinutes(11).toNanos());
        events.warn(NODE, "Reason", "a sentence");
        assertThat(lines).hasSize(2);
    }

    @Test
    void aWarningWhoseFiguresChangeIsTheSameWarning() {
        for (int mib = 1; mib <= 5; mib++) {
            events.warn(NODE, "Reason", "main GPU-1", "uses " + mib + " MiB");
        }
        assertThat(lines).containsExactly("Node n1: Reason uses 1 MiB");
        events.warn(NODE, "Reason", "main GPU-2", "uses 6 MiB");
        assertThat(lines).hasSize(2);
    }

    /** Regression: as above, where the API server refuses Events, so that each update sends one again. */
    @Test
    void aRepeatedFailureToSendIsLoggedOnceInTenMinutes() {
        status = 403;
        for (int i = 1; i <= 3; i++) {
            int sent = i;
            await("request " + i, () -> {
                events.warn(NODE, "Reason", "a sentence");
                return requests.get() >= sent;
            });
        }
        await("both lines", () -> lines.size() >= 2);
        assertThat(lines).hasSize(2);
        assertThat(lines.get(1)).startsWith("cannot send an event about Node n1: ");
    }
}
