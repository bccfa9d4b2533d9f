package io.aliquot.deviceplugin.report;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.nodes.CertificateDigest;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.testing.Tls;
import java.io.IOException;
import java.math.BigInteger;
import java.net.InetAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.PrivateKey;
import java.security.SecureRandom;
import java.security.cert.X509Certificate;
import java.security.spec.ECGenParameterSpec;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import javax.net.ssl.SSLContext;
import org.bouncycastle.asn1.x500.X500Name;
import org.bouncycastle.asn1.x509.Extension;
import org.bouncycastle.asn1.x509.GeneralName;
import org.bouncycastle.asn1.x509.GeneralNames;
import org.bouncycastle.cert.jcajce.JcaX509CertificateConverter;
import org.bouncycastle.cert.jcajce.JcaX509v3CertificateBuilder;
import org.bouncycastle.operator.jcajce.JcaContentSignerBuilder;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Real TLS with certificates as the scheduler and the agent make them. */
final class ReportServerTest {
    private static final String GPU = "GPU-11111111-2222-3333-4444-555555555555";
    private static final UsageReport REPORT =
            new UsageReport(Instant.parse("2026-11-26T12:00:00Z"), "node1", List.of(), List.of(), List.of());
    private static final UsageHistory HISTORY =
            new UsageHistory(REPORT.at(), 1, new UsageHistory.OfGpu(List.of(), List.of()), List.of(), List.of());

    private static final Set<String> PODS = Set.of("0a1b2c3d-0000-4000-8000-00000000000f");

    private Optional<String> named = Optional.empty();
    private final AgentCertificate agent = AgentCertificate.create();
    private final Identity scheduler = Identity.create(Duration.ofDays(90));
    private Optional<UsageReport> report = Optional.of(REPORT);
    private final List<String> allocations = new ArrayList<>();
    private final ReportServer server;

    ReportServerTest() {
        server = new ReportServer(
                0,
                () -> named,
                agent,
                () -> report,
                () -> Optional.of(PODS),
                gpu -> gpu.equals(GPU) ? Optional.of(HISTORY) : Optional.empty(),
                allocations::add);
    }

    @AfterEach
    void close() {
        server.close();
    }

    @Test
    void theSchedulerReadsUsageAndHistory() throws Exception {
        serve(scheduler);

        assertThat(UsageReport.parse(get(scheduler, UsageReport.PATH).body())).isEqualTo(REPORT);
        assertThat(UsageHistory.parse(
                        get(scheduler, UsageHistory.PATH + "?gpu=" + GPU).body()))
                .isEqualTo(HISTORY);
    }

    @Test
    void theSchedulersRequestTellsWhatIsAllocatedOnAKeptConnection() throws Exception {
        serve(scheduler);
        HttpClient client = client(Optional.of(scheduler));
        String longText = "x".repeat(100_000);

        for (String body : List.of("first", longText)) {
            HttpRequest request = HttpRequest.newBuilder(uri(UsageReport.PATH))
                    .timeout(Duration.ofSeconds(5))
                    .method("GET", HttpRequest.BodyPublishers.ofString(body))
                    .build();
            HttpResponse<String> answer = client.send(request, BodyHandlers.ofString());
            assertThat(UsageReport.parse(answer.body())).isEqualTo(REPORT);
            assertThat(answer.headers().firstValue("connection")).isEmpty();
        }

        assertThat(allocations).containsExactly("first", longText);
    }

    @Test
    void theSchedulerReadsThePodsOnDemand() throws Exception {
        serve(scheduler);

        String answer =
                get(scheduler, UsageReport.PATH + "?" + UsageReport.WITH_PODS).body();

        assertThat(UsageReport.parse(answer)).isEqualTo(REPORT.withPods(Optional.of(PODS)));
    }

    @Test
    void anUnknownGpuOrPathAndTheTimeWithoutFiguresHaveAStatusAndASentence() throws Exception {
        serve(scheduler);

        assertThat(get(scheduler, UsageHistory.PATH + "?gpu=GPU-0"))
                .returns(404, HttpResponse::statusCode)
                .satisfies(answer -> assertThat(answer.body()).contains("UUID of a GPU of this node"));
        assertThat(get(scheduler, "/metrics").statusCode()).isEqualTo(404);
        report = Optional.empty();
        assertThat(get(scheduler, UsageReport.PATH).statusCode()).isEqualTo(503);
    }

    @Test
    void aClientWithoutACertificateOrWithAnotherOneIsRefused() throws Exception {
        serve(scheduler);

        assertThatThrownBy(() -> send(client(Optional.empty()), UsageReport.PATH))
                .isInstanceOf(IOException.class);
        assertThatThrownBy(() -> get(Identity.create(Duration.ofDays(90)), UsageReport.PATH))
                .isInstanceOf(IOException.class);
        assertThatThrownBy(() -> get(of(AgentCertificate.create()), UsageReport.PATH))
                .as("another node's agent")
                .isInstanceOf(IOException.class);
    }

    @Test
    void anExpiredClientIsRefused() throws Exception {
        Identity expired = Identity.create(Duration.ofDays(-1));
        serve(expired);

        assertThatThrownBy(() -> get(expired, UsageReport.PATH)).isInstanceOf(IOException.class);
    }

    @Test
    void aRenewedClientIsAnsweredAndTheFormerOneRefused() throws Exception {
        serve(scheduler);
        HttpClient former = client(Optional.of(scheduler));
        assertThat(send(former, UsageReport.PATH).statusCode()).isEqualTo(200);
        Identity schedulerNow = Identity.create(Duration.ofDays(90));

        serve(schedulerNow);

        assertThat(get(schedulerNow, UsageReport.PATH).statusCode()).isEqualTo(200);
        assertThatThrownBy(() -> get(scheduler, UsageReport.PATH)).isInstanceOf(IOException.class);
    }

    @Test
    void anAnnotationThatIsGoneOrNoListOfDigestsKeepsTheFormerClients() throws Exception {
        serve(scheduler);

        for (String damaged : List.of("", "abc", scheduler.digest() + ",", (scheduler.digest() + ",x").repeat(20))) {
            named = Optional.of(damaged);
            server.reload();
            assertThat(get(scheduler, UsageReport.PATH).statusCode()).isEqualTo(200);
        }
        named = Optional.empty();
        server.reload();
        assertThat(get(scheduler, UsageReport.PATH).statusCode()).isEqualTo(200);
    }

    @Test
    void eachOfSeveralClientsIsAnswered() throws Exception {
        Identity other = Identity.create(Duration.ofDays(90));
        named = Optional.of(scheduler.digest() + "," + other.digest());
        server.reload();

        assertThat(get(scheduler, UsageReport.PATH).statusCode()).isEqualTo(200);
        assertThat(get(other, UsageReport.PATH).statusCode()).isEqualTo(200);
    }

    /** Regression: all agents had one key, so each could answer for another node. */
    @Test
    void eachAgentHasAKeyOfItsOwnThatDoesNotExpire() throws Exception {
        serve(scheduler);

        var served = (X509Certificate)
                get(scheduler, UsageReport.PATH).sslSession().orElseThrow().getPeerCertificates()[0];

        assertThat(CertificateDigest.of(served)).isEqualTo(agent.digest());
        served.verify(served.getPublicKey());
        assertThat(served.getNotAfter()).isAfter(Instant.parse("9999-12-31T00:00:00Z"));
        assertThat(AgentCertificate.create().certificate().getPublicKey()).isNotEqualTo(served.getPublicKey());
    }

    @Test
    void nothingListensBeforeTheSchedulerHasNamedItsClients() throws Exception {
        server.reload();
        assertThat(server.port()).isEmpty();

        serve(scheduler);
        assertThat(server.port()).isPresent();
    }

    /** Regression: 4 such connections kept the scheduler out. */
    @Test
    void theSchedulerIsAnsweredBesideClientsThatDoNotFinishTheirHandshake() throws Exception {
        serve(scheduler);
        HttpClient kept = client(Optional.of(scheduler));
        assertThat(send(kept, UsageReport.PATH).statusCode()).isEqualTo(200);
        var silent = new ArrayList<Socket>();
        try {
            for (int i = 0; i < 200; i++) {
                var socket = new Socket(
                        InetAddress.getLoopbackAddress(), server.port().orElseThrow());
                silent.add(socket);
                socket.getOutputStream().write(22); // the first byte of a TLS handshake
            }
            assertThat(send(kept, UsageReport.PATH).statusCode()).isEqualTo(200);
            assertThat(get(scheduler, UsageReport.PATH).statusCode()).isEqualTo(200);
        } finally {
            for (Socket socket : silent) {
                socket.close();
            }
        }
    }

    private void serve(Identity client) {
        named = Optional.of(client.digest());
        server.reload();
    }

    private HttpResponse<String> get(Identity client, String path) throws Exception {
        return send(client(Optional.of(client)), path);
    }

    private HttpResponse<String> send(HttpClient client, String path) throws Exception {
        return client.send(
                HttpRequest.newBuilder(uri(path)).timeout(Duration.ofSeconds(5)).build(), BodyHandlers.ofString());
    }

    private URI uri(String path) {
        return URI.create("https://localhost:" + server.port().orElseThrow() + path);
    }

    private static HttpClient client(Optional<Identity> client) throws Exception {
        SSLContext tls = client.isPresent()
                ? Tls.anyServer(client.get().key(), client.get().certificate())
                : Tls.anyServer();
        return HttpClient.newBuilder().sslContext(tls).build();
    }

    private static Identity of(AgentCertificate agent) {
        return new Identity(agent.key(), agent.certificate());
    }

    private record Identity(PrivateKey key, X509Certificate certificate) {
        static Identity create(Duration validity) {
            try {
                KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
                generator.initialize(new ECGenParameterSpec("secp256r1"));
                KeyPair keys = generator.generateKeyPair();
                var name = new X500Name("CN=test");
                Instant now = Instant.now();
                var builder = new JcaX509v3CertificateBuilder(
                                name,
                                new BigInteger(64, new SecureRandom()),
                                Date.from(now.minus(Duration.ofDays(2))),
                                Date.from(now.plus(validity)),
                                name,
                                keys.getPublic())
                        .addExtension(
                                Extension.subjectAlternativeName,
                                false,
                                new GeneralNames(new GeneralName(GeneralName.dNSName, "localhost")));
                return new Identity(
                        keys.getPrivate(),
                        new JcaX509CertificateConverter()
                                .getCertificate(builder.build(
                                        new JcaContentSignerBuilder("SHA256withECDSA").build(keys.getPrivate()))));
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }

        String digest() {
            return CertificateDigest.of(certificate);
        }
    }
}
