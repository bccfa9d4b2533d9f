package io.aliquot.scheduler.server;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.TrustManagerFactory;
import org.apache.catalina.connector.Connector;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.tomcat.TomcatWebServer;
import org.springframework.boot.web.server.servlet.context.ServletWebServerApplicationContext;
import org.springframework.boot.webmvc.autoconfigure.error.ErrorMvcAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Import;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;

/** The three ports over real connections. */
class DoorsTest {
    private static ServletWebServerApplicationContext context;
    private static volatile Optional<CertificateSource.Identity> identity = Optional.empty();
    private static int extender;
    private static int webhooks;
    private static int health;

    @SpringBootConfiguration(proxyBeanMethods = false)
    @EnableAutoConfiguration(exclude = ErrorMvcAutoConfiguration.class)
    @Import({ServerConfiguration.class, MetricsConfiguration.class, HealthController.class, ErrorAnswers.class})
    static class Program {
        @Bean
        Ports ports() {
            return new Ports(0, 0, 0, 0);
        }

        @Bean
        CertificateSource certificates() {
            return () -> identity;
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
                    return Optional.of("somebody else leads");
                }
            };
        }

        @Bean
        Verbs verbs() {
            return new Verbs();
        }
    }

    @RestController
    static class Verbs {
        @PostMapping("/filter")
        Map<String, Object> filter(@RequestBody Map<String, Object> body) {
            return body;
        }

        @PostMapping("/bind")
        String bind() {
            throw new IllegalStateException("a secret of the inside");
        }

        @PostMapping("/admission/gpu")
        String review() {
            return "reviewed";
        }
    }

    @BeforeAll
    static void start() {
        context = (ServletWebServerApplicationContext) new SpringApplicationBuilder(Program.class).run();
        Connector[] connectors = connectors(context);
        extender = connectors[0].getLocalPort();
        webhooks = connectors[1].getLocalPort();
        health = connectors[2].getLocalPort();
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

    @ParameterizedTest
    @ValueSource(
            strings = {"/filter", "/admission/gpu", "/livez/../filter", "/livez;/filter", "/%66ilter", "/error", "/"})
    void anotherPortsPathIsNotFound(String path) throws Exception {
        assertThat(post(health, path, "{}").statusCode()).isIn(400, 404);
    }

    @Test
    void whoeverLeavesAnswersStillAndAsksClientsToCloseTheirConnections() throws Exception {
        var leaving = (ServletWebServerApplicationContext) new SpringApplicationBuilder(Program.class).run();
        int port = connectors(leaving)[0].getLocalPort();
        int tls = connectors(leaving)[1].getLocalPort();
        assertThat(post(port, "/filter", "{}").headers().firstValue("Connection"))
                .isEmpty();
        var closing = new Thread(leaving::close);
        try (var kept = new Socket("localhost", tls)) {
            assertThat(kept.isConnected()).isTrue();
            closing.start();
            String said = "";
            while (!said.equals("close")) { // a refused connection, once it has stopped, fails
                said = post(port, "/filter", "{}")
                        .headers()
                        .firstValue("Connection")
                        .orElse("");
            }
        }
        closing.join();
    }

    @Test
    void theExtenderAnswersNoOtherPath() throws Exception {
        for (String path : List.of("/livez", "/metrics", "/admission/gpu", "/filter/", "/filter;a=b", "/error")) {
            assertThat(post(extender, path, "{}").statusCode()).as(path).isEqualTo(404);
        }
    }

    @Test
    void theExtenderListensOnLocalhostAlone() {
        assertThat(String.valueOf(connectors(context)[0].getProperty("address")))
                .contains("127.0.0.1");
    }

    @Test
    void readinessSaysWhatItWaitsFor() throws Exception {
        HttpResponse<String> answer = get(health, "/readyz");
        assertThat(answer.statusCode()).isEqualTo(503);
        assertThat(answer.body()).isEqualTo("waits for a test\nsomebody else leads\n");
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
    void aBodyOfUntoldLengthIsRefused() throws Exception {
        var endless =
                BodyPublishers.ofInputStream(() -> new ByteArrayInputStream("{}".getBytes(StandardCharsets.UTF_8)));
        var request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + extender + "/filter"))
                .header("Content-Type", "application/json")
                .POST(endless);
        assertThat(send(HttpClient.newHttpClient(), request).statusCode()).isEqualTo(411);
    }

    @Test
    void aFailureInsideTellsNothingOfTheInside() throws Exception {
        HttpResponse<String> answer = post(extender, "/bind", "{}");
        assertThat(answer.statusCode()).isEqualTo(500);
        assertThat(answer.body()).isEqualTo("internal error; the scheduler's log tells more\n");
    }

    @Test
    void aWrongMethodOrMediaTypeIsRefusedInWords() throws Exception {
        assertThat(get(extender, "/filter").statusCode()).isEqualTo(405);
        var request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + extender + "/filter"))
                .header("Content-Type", "text/xml")
                .POST(BodyPublishers.ofString("<a/>"));
        assertThat(send(HttpClient.newHttpClient(), request).statusCode()).isEqualTo(415);
    }

    @Test
    void aNewCertificateIsShownFromTheNextConnectionOn() throws Exception {
        identity = Optional.empty();
        KeyStore first = KeyStores.selfSigned("first");
        assertThatThrownBy(() -> review(first)).isInstanceOf(SSLHandshakeException.class);
        identity = identity(first);
        assertThat(review(first).body()).isEqualTo("reviewed");
        KeyStore second = KeyStores.selfSigned("second");
        identity = identity(second);
        assertThatThrownBy(() -> review(first)).isInstanceOf(SSLHandshakeException.class);
        assertThat(review(second).body()).isEqualTo("reviewed");
    }

    private static Connector[] connectors(ServletWebServerApplicationContext context) {
        var server = (TomcatWebServer) Objects.requireNonNull(context.getWebServer());
        return server.getTomcat().getService().findConnectors();
    }

    private static Optional<CertificateSource.Identity> identity(KeyStore store) throws Exception {
        var key = (PrivateKey) store.getKey(KeyStores.ALIAS, KeyStores.PASSWORD.toCharArray());
        var certificate = (X509Certificate) store.getCertificate(KeyStores.ALIAS);
        return Optional.of(new CertificateSource.Identity(key, List.of(certificate)));
    }

    private static HttpResponse<String> review(KeyStore trusted) throws Exception {
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        var anchors = KeyStore.getInstance("PKCS12");
        anchors.load(null, null);
        anchors.setCertificateEntry("server", trusted.getCertificate(KeyStores.ALIAS));
        trust.init(anchors);
        var tls = SSLContext.getInstance("TLS");
        tls.init(null, trust.getTrustManagers(), null);
        var client = HttpClient.newBuilder().sslContext(tls).build();
        return send(
                client,
                HttpRequest.newBuilder(URI.create("https://localhost:" + webhooks + "/admission/gpu"))
                        .POST(BodyPublishers.noBody()));
    }

    private static HttpResponse<String> get(int port, String path) throws IOException, InterruptedException {
        return send(HttpClient.newHttpClient(), HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path)));
    }

    private static HttpResponse<String> post(int port, String path, String body)
            throws IOException, InterruptedException {
        return send(
                HttpClient.newHttpClient(),
                HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path))
                        .header("Content-Type", "application/json")
                        .POST(BodyPublishers.ofString(body)));
    }

    private static HttpResponse<String> send(HttpClient client, HttpRequest.Builder request)
            throws IOException, InterruptedException {
        return client.send(request.build(), BodyHandlers.ofString());
    }
}
