package io.aliquot.scheduler.server.ports;

import static io.aliquot.testing.Await.await;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import org.apache.catalina.connector.Connector;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.web.server.servlet.context.ServletWebServerApplicationContext;
import org.springframework.context.support.GenericApplicationContext;

/** Clients of the ports that every pod can reach, which send or read slowly, or open connections without end. */
class HostileClientsTest {
    private static final int CONNECTIONS = 200;

    /** Of what must answer within a second on a machine that is not busy with other tests. */
    private static final Duration PATIENCE = Duration.ofSeconds(5);

    private static ServletWebServerApplicationContext context;
    private static SSLContext tls;
    private final List<Socket> open = new ArrayList<>();

    @BeforeAll
    static void start() throws Exception {
        context =
                (ServletWebServerApplicationContext) new SpringApplicationBuilder(PortPoliciesTest.Program.class).run();
        serve(context);
        tls = PinnedTls.client(Optional::empty, certificate -> {});
    }

    @AfterAll
    static void stop() {
        context.close();
    }

    @AfterEach
    void disconnect() throws IOException {
        for (Socket socket : open) {
            socket.close();
        }
    }

    /** Regression: 4 such connections made the kubelet restart the extender and kube-scheduler. */
    @Test
    void probesAnswerBesideSlowBodies() throws Exception {
        for (int i = 0; i < CONNECTIONS; i++) {
            send(plain(health()), "POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 60000000\r\n\r\n{");
        }
        for (int i = 0; i < 7; i++) {
            assertThat(probe()).startsWith("HTTP/1.1 200");
        }
    }

    @Test
    void aRefusedRequestIsClosedBeforeItsBodyHasCome() throws Exception {
        String head = "HTTP/1.1\r\nHost: a\r\nContent-Length: 60000000\r\n\r\n";
        assertThat(answer(plain(health()), "POST /livez " + head)).startsWith("HTTP/1.1 413");
        assertThat(answer(encrypted(webhooks()), "POST /nothing " + head)).startsWith("HTTP/1.1 404");
    }

    @Test
    void aRequestThatIsAnsweredBeforeItsBodyHasComeIsClosed() throws Exception {
        String head = "HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n";
        assertThat(answer(encrypted(webhooks()), "PUT /admission/void " + head)).startsWith("HTTP/1.1 405");
    }

    /** Regression: it was logged as an internal error with a stack trace. */
    @Test
    void aLengthThatIsNoNumberIsABadRequest() throws Exception {
        assertThat(answer(plain(health()), "GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: many\r\n\r\n"))
                .startsWith("HTTP/1.1 400");
    }

    @Test
    void probesAnswerBesideClientsThatDoNotReadMetrics() throws Exception {
        for (int i = 0; i < 20; i++) {
            var socket = new Socket();
            open.add(socket);
            socket.setReceiveBufferSize(1 << 10);
            socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), health()));
            send(socket, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000));
        }
        assertThat(probe()).startsWith("HTTP/1.1 200");
    }

    /** Regression: 16 such connections stopped the webhooks. */
    @Test
    void reviewsAreAnsweredBesideSlowBodies() throws Exception {
        for (int i = 0; i < CONNECTIONS; i++) {
            send(encrypted(webhooks()), slowReview());
        }
        assertThat(review(encrypted(webhooks()))).startsWith("HTTP/1.1 200");
    }

    @Test
    void reviewsAreAnsweredBesideSlowHandshakesAndHeads() throws Exception {
        for (int i = 0; i < CONNECTIONS; i++) {
            plain(webhooks()).getOutputStream().write(22); // the first byte of a handshake
        }
        for (int i = 0; i < CONNECTIONS; i++) {
            send(encrypted(webhooks()), "POST /admission/void HTTP/1.1\r\nHost:");
        }
        assertThat(review(encrypted(webhooks()))).startsWith("HTTP/1.1 200");
    }

    @Test
    void probesAnswerBesideMoreSilentConnectionsThanThePortHolds() throws Exception {
        for (int i = 0; i < 1000; i++) {
            plain(health());
        }
        assertThat(probe()).startsWith("HTTP/1.1 200");
    }

    /** Regression: a new connection closed the one that was inactive for the longest time, of whichever address. */
    @Test
    void manyConnectionsOfOneAddressCloseNoneOfAnother() throws Exception {
        Socket idle = from("127.0.0.3", health());
        String request = "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";
        send(idle, request);
        idle.setSoTimeout((int) PATIENCE.toMillis());
        assertThat(idle.getInputStream().read()).isEqualTo('H');
        for (int i = 0; i < 1000; i++) {
            from("127.0.0.2", health());
        }
        assertThat(answer(idle, "GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
                .contains("Connection: close");
    }

    @Test
    void headsAndBodiesThatDoNotEndInTimeLoseTheirConnection() throws Exception {
        var later = new AtomicLong();
        LongSupplier clock = () -> System.nanoTime() + later.get();
        try (var program =
                (ServletWebServerApplicationContext) new SpringApplicationBuilder(PortPoliciesTest.Program.class)
                        .initializers(fresh -> ((GenericApplicationContext) fresh)
                                .registerBean("later", LongSupplier.class, () -> clock, bean -> bean.setPrimary(true)))
                        .run()) {
            serve(program);
            Socket head = plain(RandomPorts.health(program));
            send(head, "GET /livez HTTP/1.1\r\nHost:");
            Socket body = encrypted(RandomPorts.webhooks(program));
            send(body, slowReview());

            later.addAndGet(PortPolicy.READ_TIMEOUT.plusSeconds(1).toNanos());
            assertThat(answer(head, "a")).isEmpty();
            body.setSoTimeout(2000);
            assertThatThrownBy(() -> body.getInputStream().read()).isInstanceOf(SocketTimeoutException.class);
            later.addAndGet(PortPolicy.REQUEST_TIMEOUT.toNanos());
            assertThat(answer(body, "{")).doesNotContain(" 200 ");
        }
    }

    /** Regression: readiness stayed as it was. */
    @Test
    void readinessSaysWhetherTheWebhooksPortAnswers() throws Exception {
        try (var program = (ServletWebServerApplicationContext)
                new SpringApplicationBuilder(PortPoliciesTest.Program.class, WebhookPortCheck.class).run()) {
            int port = RandomPorts.health(program);
            assertThat(ready(port)).contains("waits for an answer of the webhooks' port");
            serve(program);
            await(() -> !ready(port).contains("webhooks' port"));
            Connector webhooks = RandomPorts.connectors(program)[1];
            webhooks.pause();
            await(() -> ready(port).contains("webhooks' port"));
            webhooks.resume();
            await(() -> !ready(port).contains("webhooks' port"));
        }
    }

    private String ready(int port) throws IOException {
        return answer(plain(port), "GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }

    /** Regression: 1,031 idle connections ended a process with this heap. */
    @Test
    void connectionsWithoutEndFitIntoTheHeapAndKeepNoReviewOut() throws Exception {
        int connections = System.getenv("ALIQUOT_LONG") == null ? 1200 : 5000;
        Process process = new ProcessBuilder(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-Xmx96m",
                        "-XX:+UseSerialGC",
                        "-XX:+ExitOnOutOfMemoryError",
                        "-cp",
                        System.getProperty("java.class.path"),
                        HostileClientsTest.class.getName())
                .redirectErrorStream(true)
                .start();
        try (var out = process.inputReader()) {
            int port = Integer.parseInt(out.lines()
                    .filter(line -> line.matches("[0-9]+"))
                    .findFirst()
                    .orElseThrow());
            for (int i = 0; i < connections; i++) {
                Socket socket = plain(port);
                // Only the socket stays open: the TLS of 5,000 clients would take much memory, too.
                var encrypted = (SSLSocket) tls.getSocketFactory().createSocket(socket, "localhost", port, false);
                encrypted.startHandshake();
                switch (i % 3) {
                    case 0 -> send(encrypted, "POST /admission/void HTTP/1.1\r\nHost:");
                    case 1 -> send(encrypted, slowReview());
                    default -> {} // idle
                }
                if (i % 100 == 0) {
                    assertThat(review(encrypted(port))).as("after " + i).startsWith("HTTP/1.1 200");
                }
            }
            assertThat(review(encrypted(port))).startsWith("HTTP/1.1 200");
            assertThat(process.isAlive()).isTrue();
        } finally {
            process.destroyForcibly();
        }
    }

    /** The process with a small heap; prints its port. */
    public static void main(String[] arguments) throws Exception {
        var program =
                (ServletWebServerApplicationContext) new SpringApplicationBuilder(PortPoliciesTest.Program.class).run();
        serve(program);
        System.out.println(RandomPorts.webhooks(program));
    }

    private String probe() throws IOException {
        return answer(plain(health()), "GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }

    private static String slowReview() {
        return "POST /admission/void HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                + "Content-Length: 3000000\r\n\r\n{";
    }

    private static String review(Socket socket) throws IOException {
        return answer(
                socket,
                "POST /admission/void HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
                        + "Connection: close\r\n\r\n{}");
    }

    private static String answer(Socket socket, String request) throws IOException {
        socket.setSoTimeout((int) PATIENCE.toMillis());
        var answer = new ByteArrayOutputStream();
        try {
            send(socket, request);
            socket.getInputStream().transferTo(answer);
        } catch (SocketTimeoutException e) {
            throw e;
        } catch (IOException e) { // the server has closed the connection without reading all
        }
        return answer.toString(StandardCharsets.ISO_8859_1);
    }

    private static void send(Socket socket, String text) throws IOException {
        socket.getOutputStream().write(text.getBytes(StandardCharsets.ISO_8859_1));
        socket.getOutputStream().flush();
    }

    private Socket plain(int port) throws IOException {
        var socket = new Socket(InetAddress.getLoopbackAddress(), port);
        open.add(socket);
        return socket;
    }

    private Socket from(String address, int port) throws IOException {
        var socket = new Socket();
        open.add(socket);
        socket.bind(new InetSocketAddress(address, 0));
        socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
        return socket;
    }

    private SSLSocket encrypted(int port) throws IOException {
        var socket = (SSLSocket) tls.getSocketFactory().createSocket(InetAddress.getLoopbackAddress(), port);
        open.add(socket);
        socket.setSoTimeout((int) PATIENCE.toMillis());
        socket.startHandshake();
        return socket;
    }

    private static int health() {
        return RandomPorts.health(context);
    }

    private static int webhooks() {
        return RandomPorts.webhooks(context);
    }

    private static void serve(ServletWebServerApplicationContext program) throws Exception {
        KeyStore store = KeyStores.selfSigned("any");
        program.getBean(TlsCertificate.class)
                .serve((PrivateKey) store.getKey(KeyStores.ALIAS, KeyStores.PASSWORD.toCharArray()), (X509Certificate)
                        store.getCertificate(KeyStores.ALIAS));
    }
}
