package io.aliquot.scheduler.admission;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.aliquot.scheduler.certificate.CertificateKeeperFixture;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerEvents;
import io.aliquot.scheduler.nodeagent.NodeReports;
import io.aliquot.scheduler.server.ports.RandomPorts;
import io.aliquot.testing.Await;
import io.aliquot.testing.Tls;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.server.mock.EnableKubernetesMockClient;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.math.BigInteger;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLSocket;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.webmvc.autoconfigure.error.ErrorMvcAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.ComponentScan.Filter;
import org.springframework.context.annotation.FilterType;
import org.springframework.context.annotation.Import;
import org.springframework.context.support.GenericApplicationContext;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/** Calls the webhooks as the API server does: over TLS, with the Service's name, trusting only the caBundle. */
@EnableKubernetesMockClient(crud = true, https = false)
class WebhooksTest {
    @SuppressWarnings("NullAway.Init") // set by the extension
    private KubernetesClient kubernetes;

    @SuppressWarnings("NullAway.Init")
    private CertificateKeeperFixture keeper;

    @SuppressWarnings("NullAway.Init")
    private ConfigurableApplicationContext context;

    @SpringBootConfiguration(proxyBeanMethods = false)
    @EnableAutoConfiguration(exclude = ErrorMvcAutoConfiguration.class)
    @ComponentScan(
            basePackages = {
                "io.aliquot.scheduler.server",
                "io.aliquot.scheduler.settings",
                "io.aliquot.scheduler.admission"
            },
            excludeFilters =
                    @Filter(
                            type = FilterType.REGEX,
                            pattern = {".*CertificateConfiguration", ".*Test\\$.*"}))
    @Import(RandomPorts.class)
    static class Program {
        @Bean
        Ledger ledger() {
            return new Ledger(System::nanoTime, new LedgerEvents());
        }

        @Bean
        NodeReports nodeReports() {
            return new NodeReports();
        }

        /** Lets the webhooks read namespaces from the API server of a configuration. */
        static void reading(ConfigurableApplicationContext starting, Config apiServer) {
            ((GenericApplicationContext) starting)
                    .registerBean(ApiServerClient.class, () -> new ApiServerClient(apiServer));
        }
    }

    @BeforeEach
    void start() {
        keeper = new CertificateKeeperFixture(kubernetes);
        context = new SpringApplicationBuilder(Program.class)
                .properties("POD_NAME=aliquot-1", "POD_NAMESPACE=aliquot")
                .initializers(
                        starting -> keeper.registerIn((GenericApplicationContext) starting),
                        starting -> Program.reading(starting, kubernetes.getConfiguration()))
                .run();
    }

    @AfterEach
    void stop() {
        context.close();
    }

    @Test
    void answersAReviewOverTheCertificateThatTheCaBundleTrusts() throws Exception {
        keeper.reconcile();

        Response response = post(
                "/admission/gpu",
                AdmissionReviewTest.review(Pods.gpuPodWithCorePolicy()).toString());

        assertThat(response.status()).isEqualTo(200);
        assertThat(response.head()).contains("application/json");
        JsonNode admission = Pods.JSON.readTree(response.body()).get("response");
        assertThat(admission.get("allowed").booleanValue()).isTrue();
        assertThat(new String(admission.get("patch").binaryValue(), StandardCharsets.UTF_8))
                .contains("aliquot-vgpu-main");
    }

    @Test
    void theVoidWebhookNeverDenies() throws Exception {
        keeper.reconcile();

        String review = AdmissionReviewTest.review(Pods.requesting("{\"nvidia.com/gpumem\": \"3Gi\"}"))
                .toString();

        assertThat(post("/admission/gpu", review).body()).contains("write 3072 instead of 3Gi");
        assertThat(Pods.JSON
                        .readTree(post("/admission/void", review).body())
                        .at("/response/allowed")
                        .booleanValue())
                .isTrue();
    }

    /** Regression: a few slow reviews held the memory of all. */
    @Test
    void slowReviewsOfOneClientKeepNoLargePodOfAnotherOut() throws Exception {
        keeper.reconcile();
        ObjectNode pod = Pods.gpuPodWithCorePolicy();
        for (int i = 0; i < 200; i++) {
            pod.withArray("/spec/containers").addObject().put("name", "c" + i);
        }
        String review = AdmissionReviewTest.review(pod).toString();
        String slowly = "POST /admission/gpu HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: "
                + review.length() + "\r\n\r\n" + review.substring(0, review.length() - 1);
        var slow = new ArrayList<Socket>();
        try {
            Await.await("the slow client has its part of the memory", () -> {
                var socket = (SSLSocket) Tls.anyServer().getSocketFactory().createSocket();
                slow.add(socket);
                socket.bind(new InetSocketAddress("127.0.0.2", 0));
                socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), RandomPorts.webhooks(context)));
                socket.getOutputStream().write(slowly.getBytes(StandardCharsets.UTF_8));
                return code("127.0.0.2", review) == 429;
            });
            assertThat(code("127.0.0.3", review)).isZero();
        } finally {
            for (Socket socket : slow) {
                socket.close();
            }
        }
    }

    /** Why the pod of a review from this address is denied; 0 if it is allowed. */
    private int code(String from, String review) throws Exception {
        try (HttpClient client = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .localAddress(InetAddress.getByName(from))
                .sslContext(Tls.anyServer())
                .build()) {
            HttpRequest request = HttpRequest.newBuilder(
                            URI.create("https://localhost:" + RandomPorts.webhooks(context) + "/admission/gpu"))
                    .header("Content-Type", "application/json")
                    .POST(HttpRequest.BodyPublishers.ofString(review))
                    .build();
            String answer =
                    client.send(request, HttpResponse.BodyHandlers.ofString()).body();
            return Pods.JSON.readTree(answer).at("/response/status/code").intValue(0);
        }
    }

    @Test
    void aReviewOfAnUpdateHoldsTwoLargePods() throws Exception {
        keeper.reconcile();
        ObjectNode pod = Pods.gpuPod();
        Pods.container(pod, 0).putArray("args").add("a".repeat(2_900_000));
        ObjectNode update = AdmissionReviewTest.review(pod);
        update.withObject("/request")
                .put("operation", "UPDATE")
                .put("subResource", "ephemeralcontainers")
                .set("oldObject", pod);

        Response response = post("/admission/void", update.toString());

        assertThat(response.status()).as(response.body()).isEqualTo(200);
        assertThat(Pods.JSON.readTree(response.body()).at("/response/allowed").booleanValue())
                .isTrue();
    }

    @Test
    void answersBadInputInOneLineWithoutAStackTrace() throws Exception {
        keeper.reconcile();

        for (String path : new String[] {"/admission/gpu", "/admission/void"}) {
            for (String body : new String[] {
                "",
                "{",
                "[]",
                "{}",
                "null",
                "\u0000\uffff",
                "{\"a\":".repeat(100_000),
                AdmissionReviewTest.review(Pods.parse("{\"spec\": {\"containers\": [1]}}"))
                        .toString()
            }) {
                Response response = post(path, body);
                assertThat(response.status()).as(response.body()).isEqualTo(400);
                assertThat(response.body().strip()).isNotEmpty().doesNotContain("\n", "Exception", "\tat ");
            }
            // The server closes the connection and reads no body.
            assertThat(post(bundle(), path, "", (8 << 20) + 1).status()).isEqualTo(413);
        }
    }

    @Test
    void thePortIsOpenButNotTrustedBeforeTheFirstReconciliation() throws Exception {
        assertThatThrownBy(() -> post(List.of(keeper.otherCertificate()), "/admission/gpu", "{}"))
                .isInstanceOf(SSLException.class);
        assertThat(ready()).startsWith("waits for the webhooks' certificate");
        keeper.reconcile();
        // The replica asks its own port now and then.
        Await.await("readiness", () -> ready().equals("ok\n"));
    }

    @Test
    void noCallFailsWhileACertificateIsRenewed() throws Exception {
        keeper.reconcile();
        Collection<? extends Certificate> before = bundle();
        BigInteger old = keeper.serialNumber();
        String review = AdmissionReviewTest.review(Pods.gpuPod()).toString();

        keeper.advance(Duration.ofDays(60));
        keeper.reconcile();

        assertThat(keeper.serialNumber()).isNotEqualTo(old);
        assertThat(post(before, "/admission/gpu", review).status()).isEqualTo(200);
        keeper.advance(Duration.ofHours(2));
        keeper.reconcile();
        assertThat(post(before, "/admission/gpu", review).status()).isEqualTo(200);
    }

    private record Response(int status, String head, String body) {}

    private Response post(String path, String body) throws IOException, GeneralSecurityException {
        return post(bundle(), path, body);
    }

    private Response post(Collection<? extends Certificate> trusted, String path, String body)
            throws IOException, GeneralSecurityException {
        return post(trusted, path, body, body.getBytes(StandardCharsets.UTF_8).length);
    }

    /** Uses a socket, because the JDK's client cannot connect to one name and check the certificate for another. */
    private Response post(Collection<? extends Certificate> trusted, String path, String body, int length)
            throws IOException, GeneralSecurityException {
        SSLContext tls = Tls.trusting(trusted);
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        String host = CertificateKeeperFixture.host();
        try (var plain = new Socket(InetAddress.getLoopbackAddress(), RandomPorts.webhooks(context));
                var socket = (SSLSocket) tls.getSocketFactory().createSocket(plain, host, 443, true)) {
            var parameters = socket.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            socket.setSSLParameters(parameters);
            socket.setSoTimeout(20_000);
            var head = "POST " + path + "?timeout=10s HTTP/1.1\r\nHost: " + host
                    + "\r\nContent-Type: application/json\r\nAccept: application/json, */*\r\nContent-Length: "
                    + length + "\r\nConnection: close\r\n\r\n";
            socket.getOutputStream().write(head.getBytes(StandardCharsets.US_ASCII));
            socket.getOutputStream().write(bytes);
            socket.getOutputStream().flush();
            String answer = new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            String[] parts = answer.split("\r\n\r\n", 2);
            return new Response(Integer.parseInt(parts[0].substring(9, 12)), parts[0], unchunked(parts));
        }
    }

    private static String unchunked(String[] parts) {
        if (!parts[0].contains("chunked")) {
            return parts[1];
        }
        String[] lines = parts[1].split("\r\n", -1);
        var body = new StringBuilder();
        for (int i = 1; i < lines.length; i += 2) {
            body.append(lines[i]);
        }
        return body.toString();
    }

    private String ready() throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + RandomPorts.health(context) + "/readyz"))
                .build();
        return HttpClient.newHttpClient()
                .send(request, HttpResponse.BodyHandlers.ofString())
                .body();
    }

    /** The caBundle, which the API server trusts. */
    private Collection<? extends Certificate> bundle() throws GeneralSecurityException, IOException {
        String bundle = kubernetes
                .admissionRegistration()
                .v1()
                .mutatingWebhookConfigurations()
                .withName("aliquot")
                .get()
                .getWebhooks()
                .get(1)
                .getClientConfig()
                .getCaBundle();
        return CertificateFactory.getInstance("X.509")
                .generateCertificates(
                        new ByteArrayInputStream(Base64.getDecoder().decode(bundle)));
    }
}
