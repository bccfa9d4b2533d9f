package io.aliquot.scheduler.server.ports;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.scheduler.SystemClocks;
import io.aliquot.scheduler.server.health.Liveness;
import io.aliquot.scheduler.server.health.Readiness;
import io.aliquot.testing.Tls;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLHandshakeException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.web.server.servlet.context.ServletWebServerApplicationContext;
import org.springframework.boot.webmvc.autoconfigure.error.ErrorMvcAutoConfiguration;
import org.springframework.context.ApplicationContext;
import org.springframework.context.SmartLifecycle;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.Import;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

/** All ports without the aggregated API, over real connections. */
class PortPoliciesTest {
    private static final HttpClient CLIENT = HttpClient.newHttpClient();
    private static final String REQUEST = "POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}";

    private static ServletWebServerApplicationContext context;
    private static volatile CountDownLatch asked = new CountDownLatch(0);
    private static volatile CountDownLatch mayAnswer = new CountDownLatch(0);
    private static volatile Optional<String> failure = Optional.empty();
    private static int extender;
    private static int webhooks;
    private static int health;

    @SpringBootConfiguration(proxyBeanMethods = false)
    @EnableAutoConfiguration(exclude = ErrorMvcAutoConfiguration.class)
    @Import({ServerConfiguration.class, SystemClocks.class})
    @ComponentScan({"io.aliquot.scheduler.server.errors", "io.aliquot.scheduler.server.health"})
    static class Program {
        @Bean
        Ports ports() {
            return new Ports(0, 0, 0);
        }

        @Bean
        Liveness part() {
            return () -> failure;
        }

        @Bean
        Readiness never() {
            return new Readiness() {
                @Override
                public Optional<String> waitsFor() {
                    return Optional.of("a test");
                }

                @Override
                public Optional<String> remark() {
                    return Optional.of("another pod leads");
                }
            };
        }

        @Bean
        Verbs verbs(JsonMapper json) {
            return new Verbs(json);
        }

        @Bean
        Reviews reviews() {
            return new Reviews();
        }
    }

    /** Filter answers what it is sent, bind fails, preempt when it may. */
    @RestController
    static class Verbs {
        private final JsonMapper json;

        Verbs(JsonMapper json) {
            this.json = json;
        }

        @PostMapping("/filter")
        byte[] filter(@RequestBody byte[] body) {
            return json.writeValueAsBytes(json.readValue(body, ObjectNode.class));
        }

        @PostMapping("/bind")
        byte[] bind() {
            throw new IllegalStateException("a secret of the inside");
        }

        @PostMapping("/preempt")
        byte[] preempt(@RequestBody byte[] body) {
            asked.countDown();
            try {
                mayAnswer.await();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            return body;
        }
    }

    @RestController
    static class Reviews {
        @PostMapping("/admission/gpu")
        String review() {
            return "reviewed";
        }

        @PostMapping("/admission/void")
        Map<String, Object> reviewed(@RequestBody Map<String, Object> body) {
            return body;
        }
    }

    @BeforeAll
    static void start() {
        context = (ServletWebServerApplicationContext) new SpringApplicationBuilder(Program.class).run();
        extender = RandomPorts.extender(context);
        webhooks = RandomPorts.webhooks(context);
        health = RandomPorts.health(context);
    }

    @AfterAll
    static void stop() {
        context.close();
    }

    @Test
    void eachPathAnswersOnItsOwnPort() throws Exception {
        assertThat(post(extender, "/filter", "{}").statusCode()).isEqualTo(200);
        assertThat(get(health, "/livez").body()).isEqualTo("ok\n");
        assertThat(get(health, "/metrics").body()).contains("jvm_memory_used_bytes");
    }

    @Test
    void theLivenessProbeFailsWithTheFailureOfAComponent() throws Exception {
        failure = Optional.of("taking over the Lease has ended");
        try {
            HttpResponse<String> answer = get(health, "/livez");
            assertThat(answer.statusCode()).isEqualTo(503);
            assertThat(answer.body()).isEqualTo("taking over the Lease has ended\n");
        } finally {
            failure = Optional.empty();
        }
    }

    @ParameterizedTest
    @ValueSource(
            strings = {"/filter", "/admission/gpu", "/livez/../filter", "/livez;/filter", "/%66ilter", "/error", "/"})
    void anotherPortsPathIsNotFound(String path) throws Exception {
        assertThat(post(health, path, "{}").statusCode()).isIn(400, 404);
    }

    @Test
    void aStoppingServerStillAnswersAndAsksClientsToCloseTheirConnections() throws Exception {
        var leaving = (ServletWebServerApplicationContext) new SpringApplicationBuilder(Program.class).run();
        int port = RandomPorts.health(leaving);
        int tls = RandomPorts.webhooks(leaving);
        assertThat(get(port, "/livez").headers().firstValue("Connection")).isEmpty();
        var closing = new Thread(leaving::close);
        try (var kept = new Socket(InetAddress.getLoopbackAddress(), tls)) {
            assertThat(kept.isConnected()).isTrue();
            while (leaving.getBean(PortPolicyValve.class).webhooksConnections() == 0) {
                Thread.onSpinWait(); // the kernel has accepted it before the server has
            }
            closing.start();
            String said = "";
            while (!said.equals("close")) { // a refused connection, once it has stopped, fails
                said = get(port, "/livez").headers().firstValue("Connection").orElse("");
            }
        }
        closing.join();
    }

    @Test
    void aStoppingExtenderPortCompletesRequestsAndClosesIdleConnections() throws Exception {
        var leaving = (ServletWebServerApplicationContext) new SpringApplicationBuilder(Program.class).run();
        int port = RandomPorts.extender(leaving);
        asked = new CountDownLatch(1);
        mayAnswer = new CountDownLatch(1);
        try (var silent = new Socket(InetAddress.getLoopbackAddress(), port)) {
            CompletableFuture<HttpResponse<String>> answer =
                    CLIENT.sendAsync(request(port, "/preempt", "{}").build(), BodyHandlers.ofString());
            asked.await();
            var closing = new Thread(leaving::close);
            closing.start();
            while (accepts(port)) {
                Thread.onSpinWait();
            }
            mayAnswer.countDown();
            assertThat(answer.get().body()).isEqualTo("{}");
            assertThat(silent.getInputStream().read()).isEqualTo(-1);
            closing.join();
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
    void silentConnectionsDoNotBlockOthers() throws Exception {
        var silent = new ArrayList<Socket>();
        try {
            for (int i = 0; i < 100; i++) {
                silent.add(new Socket(InetAddress.getLoopbackAddress(), extender));
            }
            assertThat(post(extender, "/filter", "{}").statusCode()).isEqualTo(200);
        } finally {
            for (Socket socket : silent) {
                socket.close();
            }
        }
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "\u0000\u0000\r\n\r\n",
                "GET\r\n\r\n",
                "POST /filter HTTP/2.0\r\nHost: a\r\n\r\n",
                "POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: many\r\n\r\n",
                "POST /filter HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
                "POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{}",
            })
    void malformedHttpEndsItsConnectionOnly(String sent) throws Exception {
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), extender)) {
            socket.getOutputStream().write(sent.getBytes(StandardCharsets.UTF_8));
            socket.shutdownOutput();
            assertThat(new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8))
                    .doesNotContain(" 200 ");
        }
        assertThat(post(extender, "/filter", "{}").statusCode()).isEqualTo(200);
    }

    @Test
    void endlessHeadersEndTheirConnection() throws Exception {
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), extender)) {
            assertThatThrownBy(() -> {
                        OutputStream out = socket.getOutputStream();
                        out.write("POST /filter HTTP/1.1\r\n".getBytes(StandardCharsets.UTF_8));
                        for (int i = 0; i < 1_000_000; i++) {
                            out.write("X-%d: %s\r\n"
                                    .formatted(i, "x".repeat(1000))
                                    .getBytes(StandardCharsets.UTF_8));
                        }
                    })
                    .isInstanceOf(SocketException.class);
        }
    }

    @Test
    void aConnectionServesManyRequests() throws Exception {
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), extender)) {
            socket.getOutputStream().write(REQUEST.repeat(1000).getBytes(StandardCharsets.UTF_8));
            socket.shutdownOutput();
            assertThat(new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8)
                            .split("HTTP/1.1 200 ", -1))
                    .hasSize(1001);
        }
    }

    @Test
    void theExtenderPortHasNoOtherPath() throws Exception {
        for (String path : List.of("/livez", "/metrics", "/admission/gpu", "/filter/", "/filter;a=b", "/error")) {
            assertThat(post(extender, path, "{}").statusCode()).as(path).isEqualTo(404);
        }
    }

    @Test
    void theExtenderListensOnLocalhostOnly() {
        assertThat(RandomPorts.connectors(context)[0].getProperty("address"))
                .isEqualTo(InetAddress.getLoopbackAddress());
    }

    @Test
    void readinessNamesWhatItWaitsFor() throws Exception {
        HttpResponse<String> answer = get(health, "/readyz");
        assertThat(answer.statusCode()).isEqualTo(503);
        assertThat(answer.body()).isEqualTo("waits for a test\nanother pod leads\n");
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "{", "[]", "{\"a\":}", "\u0000", "{} trailing"})
    void malformedJsonIsABadRequest(String body) throws Exception {
        HttpResponse<String> answer = post(extender, "/filter", body);
        assertThat(answer.statusCode()).isEqualTo(400);
        assertThat(answer.body()).isEqualTo("the body is not the JSON that this path expects\n");
    }

    @Test
    void deeplyNestedJsonIsABadRequest() throws Exception {
        assertThat(post(extender, "/filter", "{\"a\":".repeat(200_000)).statusCode())
                .isEqualTo(400);
    }

    @Test
    void aHugeBodyIsTooLarge() throws Exception {
        HttpResponse<String> answer = post(extender, "/filter", "[" + " ".repeat(9 << 20) + "]");
        assertThat(answer.statusCode()).isEqualTo(413);
        assertThat(answer.body()).contains("at most 8388608 bytes");
    }

    @Test
    void aBodyOfUnknownLengthIsRefused() throws Exception {
        var endless =
                BodyPublishers.ofInputStream(() -> new ByteArrayInputStream("{}".getBytes(StandardCharsets.UTF_8)));
        var request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + extender + "/filter"))
                .header("Content-Type", "application/json")
                .POST(endless);
        assertThat(send(CLIENT, request).statusCode()).isEqualTo(411);
    }

    @Test
    void anInternalErrorRevealsNoDetails() throws Exception {
        HttpResponse<String> answer = post(extender, "/bind", "{}");
        assertThat(answer.statusCode()).isEqualTo(500);
        assertThat(answer.body()).isEqualTo("internal error; the scheduler's log tells more\n");
    }

    @Test
    void aWrongMethodOrMediaTypeIsRefusedWithAMessage() throws Exception {
        assertThat(get(extender, "/filter").statusCode()).isEqualTo(405);
        assertThat(post(health, "/livez", "").statusCode()).isEqualTo(405);
        KeyStore store = KeyStores.selfSigned("any");
        serve(context, store);
        assertThat(review(store, "/admission/void", "text/xml", "<a/>").statusCode())
                .isEqualTo(415);
    }

    @Test
    void aReviewThatIsNotJsonIsABadRequest() throws Exception {
        KeyStore store = KeyStores.selfSigned("any");
        serve(context, store);
        HttpResponse<String> answer = review(store, "/admission/void", "application/json", "{");
        assertThat(answer.statusCode()).isEqualTo(400);
        assertThat(answer.body()).isEqualTo("the body is not the JSON that this path expects\n");
    }

    @Test
    void aNewCertificateIsUsedFromTheNextConnectionOn() throws Exception {
        KeyStore first = KeyStores.selfSigned("first");
        serve(context, first);
        assertThat(review(first).body()).isEqualTo("reviewed");
        KeyStore second = KeyStores.selfSigned("second");
        serve(context, second);
        assertThatThrownBy(() -> review(first)).isInstanceOf(SSLHandshakeException.class);
        assertThat(review(second).body()).isEqualTo("reviewed");
    }

    @Test
    void handshakesFailBeforeTheFirstCertificate() throws Exception {
        KeyStore any = KeyStores.selfSigned("any");
        try (var starting = (ServletWebServerApplicationContext) new SpringApplicationBuilder(Program.class).run()) {
            int port = RandomPorts.webhooks(starting);
            assertThatThrownBy(() -> review(port, any, "/admission/gpu", "application/json", ""))
                    .isInstanceOf(SSLHandshakeException.class);
        }
    }

    @Test
    void aCertificateThatIsThereBeforeThePortsOpenIsServed() throws Exception {
        KeyStore early = KeyStores.selfSigned("early");
        try (var starting = (ServletWebServerApplicationContext) new SpringApplicationBuilder(Program.class)
                .initializers(program -> program.addBeanFactoryPostProcessor(
                        beans -> beans.registerSingleton("early", new EarlyCertificate(program, early))))
                .run()) {
            assertThat(review(RandomPorts.webhooks(starting), early, "/admission/gpu", "application/json", "")
                            .body())
                    .isEqualTo("reviewed");
        }
    }

    /** Serves a certificate once the connectors exist, before they open their ports. */
    private record EarlyCertificate(ApplicationContext program, KeyStore store) implements SmartLifecycle {
        @Override
        public void start() {
            serve(program, store);
        }

        @Override
        public void stop() {}

        @Override
        public boolean isRunning() {
            return false;
        }

        @Override
        public int getPhase() {
            return 0;
        }
    }

    private static void serve(ApplicationContext program, KeyStore store) {
        try {
            var key = (PrivateKey) store.getKey(KeyStores.ALIAS, KeyStores.PASSWORD.toCharArray());
            var certificate = (X509Certificate) store.getCertificate(KeyStores.ALIAS);
            program.getBean(TlsCertificate.class).serve(key, certificate);
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException(e);
        }
    }

    private static HttpResponse<String> review(KeyStore trusted) throws Exception {
        return review(trusted, "/admission/gpu", "application/json", "");
    }

    private static HttpResponse<String> review(KeyStore trusted, String path, String type, String body)
            throws Exception {
        return review(webhooks, trusted, path, type, body);
    }

    private static HttpResponse<String> review(int port, KeyStore trusted, String path, String type, String body)
            throws Exception {
        SSLContext tls = Tls.trusting(List.of(trusted.getCertificate(KeyStores.ALIAS)));
        var client = HttpClient.newBuilder().sslContext(tls).build();
        return send(
                client,
                HttpRequest.newBuilder(URI.create("https://localhost:" + port + path))
                        .header("Content-Type", type)
                        .POST(BodyPublishers.ofString(body)));
    }

    private static HttpResponse<String> get(int port, String path) throws IOException, InterruptedException {
        return send(CLIENT, HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path)));
    }

    private static HttpResponse<String> post(int port, String path, String body)
            throws IOException, InterruptedException {
        return send(CLIENT, request(port, path, body));
    }

    private static HttpRequest.Builder request(int port, String path, String body) {
        return HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path))
                .header("Content-Type", "application/json")
                .POST(BodyPublishers.ofString(body));
    }

    private static HttpResponse<String> send(HttpClient client, HttpRequest.Builder request)
            throws IOException, InterruptedException {
        return client.send(request.build(), BodyHandlers.ofString());
    }
}
