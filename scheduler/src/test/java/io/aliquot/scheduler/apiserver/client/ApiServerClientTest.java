package io.aliquot.scheduler.apiserver.client;

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
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** {@code KubernetesClusterTest} has the rest. */
@Timeout(60)
class ApiServerClientTest {
    private final List<String> requests = new CopyOnWriteArrayList<>();
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

    private static void daemon(Work work) {
        var thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception e) {
                // the end of the test
            }
        });
        thread.setDaemon(true);
        thread.start();
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
                    socket.getOutputStream()
                            .write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                                    .getBytes(StandardCharsets.US_ASCII));
                }
            }
        }
    }

    @Test
    void requestsGoThroughTheProxyOfTheConfiguration() throws Exception {
        Config config = new ConfigBuilder(Config.empty())
                .withMasterUrl("http://api.example:6443")
                .withHttpProxy("http://127.0.0.1:" + server.getLocalPort())
                .build();
        assertThat(new ApiServerClient(config)
                        .get("/path", "application/json", Duration.ofSeconds(30))
                        .text())
                .isEqualTo("ok");
        assertThat(requests).containsExactly("GET http://api.example:6443/path HTTP/1.1");
    }
}
