package io.aliquot.scheduler.kubernetes.client;

import static io.aliquot.scheduler.kubernetes.Await.await;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** {@code KubernetesClusterTest} has the rest. */
@Timeout(60)
class ApiServerClientTest {
    private static final int AT_ONCE = 4;

    private final AtomicInteger closed = new AtomicInteger();
    private final List<String> requests = new CopyOnWriteArrayList<>();
    private final CountDownLatch allConnected = new CountDownLatch(AT_ONCE);
    private ServerSocket server;

    @BeforeEach
    void start() throws IOException {
        server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        daemon(() -> {
            while (true) {
                Socket socket = server.accept();
                daemon(() -> serve(socket));
            }
        });
    }

    @AfterEach
    void stop() throws IOException {
        server.close();
    }

    private interface Work {
        void run() throws Exception;
    }

    private static Thread daemon(Work work) {
        var thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception e) {
                // the end of the test
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** Answers until the client closes the connection. */
    private void serve(Socket socket) throws Exception {
        try (socket) {
            var in = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.US_ASCII));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                if (line.startsWith("GET ")) {
                    requests.add(line);
                }
                if (line.isEmpty()) {
                    allConnected.countDown();
                    allConnected.await();
                    socket.getOutputStream()
                            .write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                                    .getBytes(StandardCharsets.US_ASCII));
                }
            }
            closed.incrementAndGet();
        }
    }

    /**
     * Regression: connections that only a burst had needed were kept forever, half closed once the server closed them.
     */
    @Test
    void idleConnectionsAreClosed() throws Exception {
        Config config = new ConfigBuilder(Config.empty())
                .withMasterUrl("http://127.0.0.1:" + server.getLocalPort())
                .build();
        try (var client = new ApiServerClient(config, System::nanoTime, Duration.ofMillis(200))) {
            var callers = new ArrayList<Thread>();
            for (int i = 0; i < AT_ONCE; i++) {
                callers.add(daemon(() -> client.get("/", "application/json", Duration.ofSeconds(30))));
            }
            for (Thread caller : callers) {
                caller.join();
            }
            await("the connections' end", () -> closed.get() == AT_ONCE);
            assertThat(client.get("/", "application/json", Duration.ofSeconds(30))
                            .text())
                    .isEqualTo("ok");
        }
    }

    @Test
    void requestsGoThroughTheProxyOfTheConfiguration() throws Exception {
        Config config = new ConfigBuilder(Config.empty())
                .withMasterUrl("http://api.example:6443")
                .withHttpProxy("http://127.0.0.1:" + server.getLocalPort())
                .build();
        for (int i = 0; i < AT_ONCE; i++) {
            allConnected.countDown();
        }
        try (var client = new ApiServerClient(config, System::nanoTime)) {
            assertThat(client.get("/path", "application/json", Duration.ofSeconds(30))
                            .text())
                    .isEqualTo("ok");
        }
        assertThat(requests).containsExactly("GET http://api.example:6443/path HTTP/1.1");
    }
}
