package io.aliquot.scheduler.extensionapi;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.ports.ApiServers;
import io.aliquot.scheduler.apiproxy.ApiProxy;
import io.aliquot.scheduler.extensionapi.Authority.Identity;
import io.aliquot.scheduler.extensionapi.ExtensionApiProgram.FakeControlPlane;
import io.aliquot.scheduler.extensionapi.identity.FrontProxyKeeper;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.server.ports.RandomPorts;
import io.aliquot.testing.Await;
import io.aliquot.testing.FaultyTcpProxy;
import io.aliquot.testing.Tls;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import org.bouncycastle.asn1.x509.KeyPurposeId;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.context.ConfigurableApplicationContext;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The proxy in front of a replica's port, with real TLS connections. */
class ApiProxyTest {
    private static final String NODES = Discovery.VERSION_PATH + "/gpunodes";
    private static final String QUIET = "127.0.0.3";

    @TempDir
    static Path folder;

    private static Authority ca;
    private static Identity frontProxy;
    private static ConfigurableApplicationContext replica;
    private static FaultyTcpProxy service;
    private static ApiProxy proxy;

    @BeforeAll
    static void start() throws Exception {
        ca = new Authority("aliquot");
        var frontProxyCa = new Authority("front-proxy-ca");
        frontProxy = frontProxyCa.client("front-proxy-client");
        replica = ExtensionApiProgram.start();
        Identity server = issue();
        ExtensionApiProgram.serve(replica, server);
        replica.getBean(FakeControlPlane.class).authentication =
                FakeControlPlane.of(frontProxyCa.pem(), "[\"front-proxy-client\"]", ca.pem());
        replica.getBean(FrontProxyKeeper.class).read();
        service = new FaultyTcpProxy(RandomPorts.webhooks(replica));
        proxy = new ApiProxy(
                0,
                new InetSocketAddress(InetAddress.getLoopbackAddress(), service.port()),
                folder,
                ApiServers.UNKNOWN,
                System::nanoTime);
        serve(proxy);
    }

    private static void serve(ApiProxy started) {
        Thread.ofPlatform().daemon().start(() -> {
            try {
                started.serve();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        });
    }

    /** Writes a new certificate and its key to the folder of the proxy. */
    private static Identity issue() throws Exception {
        Identity server = ca.issue("localhost", KeyPurposeId.id_kp_serverAuth, Duration.ofDays(1));
        Authority.write(folder, "tls.key", server.key());
        Authority.write(folder, "tls.crt", server.certificate());
        return server;
    }

    @AfterAll
    static void stop() throws IOException {
        proxy.close();
        service.close();
        replica.close();
    }

    @BeforeEach
    void aSchedulerAnswers() throws Exception {
        schedulerAnswers(true);
    }

    /** As kube-proxy does with a Service: it refuses connections while no replica is ready. */
    private static void schedulerAnswers(boolean answers) throws InterruptedException {
        if (answers) {
            service.startListening();
        } else {
            service.stopListening();
        }
    }

    @Test
    void theSchedulerChecksTheFrontProxysCertificateThroughTheProxy() throws Exception {
        try (HttpClient apiServer = client(true);
                HttpClient stranger = client(false)) {
            HttpResponse<String> answer = get(apiServer, NODES, "application/json");
            assertThat(answer.statusCode()).as(answer.body()).isEqualTo(200);
            assertThat(json(answer).get("name").asString()).isEqualTo("alice");
            assertThat(get(stranger, NODES, "application/json").statusCode()).isEqualTo(401);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"/apis", Discovery.GROUP_PATH, Discovery.VERSION_PATH})
    void discoveryIsTheSameWhileNoSchedulerAnswers(String path) throws Exception {
        try (HttpClient apiServer = client(true)) {
            schedulerAnswers(true);
            HttpResponse<String> expected = get(apiServer, path, "application/json");
            schedulerAnswers(false);
            HttpResponse<String> found = get(apiServer, path, "application/json");

            assertThat(found.statusCode()).isEqualTo(200);
            assertThat(json(found)).isEqualTo(json(expected));
            assertThat(found.headers().firstValue("Content-Type"))
                    .isEqualTo(expected.headers().firstValue("Content-Type"));
        }
    }

    /** The namespace controller deletes what has this verb, and would ask a scheduler that is away. */
    @Test
    void noResourceCanBeDeleted() {
        assertThat(JsonMapper.shared().writeValueAsString(Discovery.resources()))
                .contains("patch", "gpushares")
                .doesNotContain("delete");
    }

    @Test
    void aRequestForDataIsToldToComeBackAndFindsTheSchedulerThen() throws Exception {
        try (HttpClient apiServer = client(true)) {
            schedulerAnswers(false);
            HttpResponse<String> away = get(apiServer, NODES, "application/json");
            assertThat(away.statusCode()).isEqualTo(503);
            assertThat(away.headers().firstValue("Retry-After")).hasValue("2");
            assertThat(json(away).get("kind").asString()).isEqualTo("Status");
            assertThat(get(apiServer, "/admission/gpu", "application/json").statusCode())
                    .isEqualTo(404);

            schedulerAnswers(true);
            assertThat(get(apiServer, NODES, "application/json").statusCode()).isEqualTo(200);
        }
    }

    @Test
    void aNewCertificateIsServedWithoutARestart() throws Exception {
        schedulerAnswers(false);
        X509Certificate former = served();
        Identity renewed = issue();

        Await.await("another certificate", () -> !served().equals(former));
        assertThat(served()).isEqualTo(renewed.certificate());
    }

    /** Regression: the kubelet retried the mount of the missing Secret for up to a minute after an installation. */
    @Test
    void thePortOpensOnceTheCertificateIsThere(@TempDir Path mount) throws Exception {
        int port = freePort();
        var program = Thread.ofPlatform().daemon().start(() -> {
            try {
                ApiProxy.run(
                        List.of(Integer.toString(port), mount.toString()),
                        Map.of("ALIQUOT_WEBHOOK_SERVICE_HOST", "127.0.0.1"),
                        System::nanoTime);
            } catch (IOException | InterruptedException e) {
                throw new AssertionError(e);
            }
        });
        Await.await("the program waits", () -> program.getState() == Thread.State.TIMED_WAITING);
        assertThat(accepts(port)).isFalse();

        Files.copy(folder.resolve("tls.key"), mount.resolve("tls.key"));
        Path certificate = Files.copy(folder.resolve("tls.crt"), mount.resolve("new"));
        Files.move(certificate, mount.resolve("tls.crt"), StandardCopyOption.ATOMIC_MOVE);

        Await.await("an open port", () -> accepts(port));
    }

    private static int freePort() throws IOException {
        try (var socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    private static boolean accepts(int port) {
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            return socket.isConnected();
        } catch (IOException e) {
            return false;
        }
    }

    @Test
    void silentAndManyStrangersKeepNoRequestOut() throws Exception {
        schedulerAnswers(false);
        var strangers = new ArrayList<Socket>();
        try (HttpClient apiServer = client(true)) {
            for (int i = 0; i < 600; i++) {
                var stranger = new Socket(InetAddress.getLoopbackAddress(), proxy.port());
                strangers.add(stranger);
                stranger.getOutputStream().write(0x16);
                if (i % 100 == 99) {
                    assertThat(get(apiServer, Discovery.VERSION_PATH, "application/json")
                                    .statusCode())
                            .isEqualTo(200);
                }
            }
        } finally {
            for (Socket stranger : strangers) {
                stranger.close();
            }
        }
    }

    /** Regression: 256 silent connections closed every quiet watch. */
    @ParameterizedTest
    @ValueSource(strings = {"127.0.0.2", QUIET})
    void silentConnectionsCloseNoQuietOne(String address) throws IOException {
        try (var echo = new Echo(ApiServers.UNKNOWN);
                Socket quiet = echo.connect(QUIET)) {
            assertThat(Echo.answers(quiet)).isTrue();
            for (int i = 0; i < 600; i++) {
                echo.connect(address);
            }
            assertThat(Echo.answers(echo.connect(address))).isTrue();
            assertThat(Echo.answers(quiet)).isTrue();
        }
    }

    /** Regression: a new connection closed the one that was inactive for the longest time, of whichever address. */
    @ParameterizedTest
    @ValueSource(ints = {0, 1})
    void aFloodOfConnectionsFromOneAddressCutsNoClientOfAnother(int bytes) throws Exception {
        try (var echo = new Echo(ApiServers.UNKNOWN);
                var flood =
                        new ConnectionFlood(InetAddress.getByName("127.0.0.2"), echo.proxy.port(), new byte[bytes])) {
            var honest = new ArrayList<Socket>();
            for (int round = 1; round <= 5; round++) {
                honest.add(echo.connect(QUIET));
                assertThat(honest).allMatch(Echo::answers);
                flood.open(1000);
            }
            assertThat(honest).allMatch(Echo::answers);
        }
    }

    @Test
    void connectionsOfKnownApiServersGiveWayToApiServersOnly() throws IOException {
        try (var echo = new Echo(ApiServers.parse("", QUIET + "/32"))) {
            var apiServers = new ArrayList<Socket>();
            for (int i = 0; i < 256; i++) {
                apiServers.add(echo.connect(QUIET));
                assertThat(Echo.answers(apiServers.getLast())).isTrue();
            }
            assertThat(Echo.answers(echo.connect("127.0.0.2"))).isFalse();
            assertThat(apiServers).allMatch(Echo::answers);
            assertThat(Echo.answers(echo.connect(QUIET))).isTrue();
            assertThat(apiServers.stream().filter(Echo::answers)).hasSize(255);
        }
    }

    /** A proxy in front of a server that sends back what it gets. */
    private static final class Echo implements AutoCloseable {
        private final ServerSocket server = new ServerSocket(0, 1024, InetAddress.getLoopbackAddress());
        private final ApiProxy proxy;
        private final List<Socket> clients = new ArrayList<>();

        Echo(ApiServers apiServers) throws IOException {
            proxy = new ApiProxy(
                    0,
                    new InetSocketAddress(InetAddress.getLoopbackAddress(), server.getLocalPort()),
                    folder,
                    apiServers,
                    System::nanoTime);
            Thread.ofVirtual().start(this::answer);
            serve(proxy);
        }

        private void answer() {
            while (!server.isClosed()) {
                try {
                    Socket connection = server.accept();
                    Thread.ofVirtual().start(() -> {
                        try (connection) {
                            connection.getInputStream().transferTo(connection.getOutputStream());
                        } catch (IOException e) {
                            // The proxy has closed it.
                        }
                    });
                } catch (IOException e) {
                    // The test is over.
                }
            }
        }

        Socket connect(String from) throws IOException {
            var client = new Socket();
            clients.add(client);
            client.bind(new InetSocketAddress(from, 0));
            client.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), proxy.port()));
            client.setSoTimeout(20_000);
            return client;
        }

        static boolean answers(Socket client) {
            try {
                client.getOutputStream().write(7);
                return client.getInputStream().read() == 7;
            } catch (IOException e) {
                return false;
            }
        }

        @Override
        public void close() throws IOException {
            for (Socket client : clients) {
                client.close();
            }
            proxy.close();
            server.close();
        }
    }

    private static JsonNode json(HttpResponse<String> answer) {
        return JsonMapper.shared().readTree(answer.body());
    }

    private static HttpResponse<String> get(HttpClient client, String path, String accept) throws Exception {
        return client.send(
                HttpRequest.newBuilder(URI.create("https://localhost:" + proxy.port() + path))
                        .header("Accept", accept)
                        .header("X-Remote-User", "alice")
                        .timeout(Duration.ofSeconds(20))
                        .build(),
                BodyHandlers.ofString());
    }

    private static X509Certificate served() throws Exception {
        try (var socket = (SSLSocket) tls(false).getSocketFactory().createSocket("localhost", proxy.port())) {
            socket.startHandshake();
            return (X509Certificate) socket.getSession().getPeerCertificates()[0];
        }
    }

    private static HttpClient client(boolean frontProxys) throws Exception {
        return HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .sslContext(tls(frontProxys))
                .build();
    }

    private static SSLContext tls(boolean frontProxys) throws Exception {
        List<X509Certificate> trusted = List.of(ca.certificate);
        return frontProxys ? Tls.trusting(trusted, frontProxy.key(), frontProxy.certificate()) : Tls.trusting(trusted);
    }
}
