package io.aliquot.scheduler.nodeagent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.scheduler.nodeagent.AgentException.Outcome;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.security.KeyStore;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Test;

/** Over real TLS on the loopback interface. */
class AgentClientTest {
    /** On a busy machine. */
    private static final Duration PATIENT = Duration.ofSeconds(30);

    private static final String HERE = "127.0.0.1";
    private static final AgentTls TLS = FakeAgent.presenting(FakeAgent.SCHEDULERS);
    private static final String DIGEST = FakeAgent.digest(FakeAgent.AGENTS);

    @Test
    void theAgentGetsTheRequestAndTheClientItsAnswer() throws Exception {
        var asked = new AtomicReference<String>("");
        try (var agent = new FakeAgent(exchange -> {
                    asked.set(exchange.getRequestMethod() + " " + exchange.getRequestURI());
                    FakeAgent.text(200, "{\"ä\":1}").to(exchange);
                });
                var client = new AgentClient(TLS, agent.port(), PATIENT)) {
            assertThat(answer(client.get(HERE, DIGEST, "/v1/history", "gpu=GPU-1", "")))
                    .isEqualTo("{\"ä\":1}");
        }
        assertThat(asked.get()).isEqualTo("GET /v1/history?gpu=GPU-1");
    }

    @Test
    void anAnswerWithAnotherCertificateThanTheNodeNamesIsRefusedAlsoOnAKeptConnection() throws Exception {
        KeyStore other = FakeAgent.keys("aliquot-node-agent"); // the same name, another key
        try (var agent = new FakeAgent(FakeAgent.text(200, "usage"));
                var client = new AgentClient(TLS, agent.port(), PATIENT)) {
            assertThat(answer(client.get(HERE, DIGEST, "/v1/usage", "", ""))).isEqualTo("usage");
            assertFails(
                    () -> answer(client.get(HERE, FakeAgent.digest(other), "/v1/usage", "", "")),
                    Outcome.UNTRUSTED,
                    "another certificate than the one that its node's inventory names");
            assertThat(answer(client.get(HERE, DIGEST, "/v1/usage", "", ""))).isEqualTo("usage");
        }
    }

    /** With TLS 1.3 the refusal follows the client's handshake, as an alert or as the connection's end. */
    @Test
    void anAgentThatDoesNotKnowTheSchedulersCertificateAnswersNothing() {
        AgentTls stranger = FakeAgent.presenting(FakeAgent.keys("aliquot-webhook"));
        try (var agent = new FakeAgent(FakeAgent.text(200, "x"));
                var client = new AgentClient(stranger, agent.port(), PATIENT)) {
            assertThatThrownBy(() -> answer(client.get(HERE, DIGEST, "/v1/usage", "", "")))
                    .cause()
                    .isInstanceOfSatisfying(
                            AgentException.class,
                            failure -> assertThat(failure.outcome()).isIn(Outcome.UNTRUSTED, Outcome.BROKEN));
            assertThat(agent.requests).hasValue(0);
        }
    }

    @Test
    void aRenewedCertificateIsPresentedFromTheNextRequestOn() throws Exception {
        KeyStore renewed = FakeAgent.keys("aliquot-webhook");
        AgentTls tls = FakeAgent.presenting(FakeAgent.SCHEDULERS);
        try (var agent = new FakeAgent(FakeAgent.AGENTS, renewed, 0, FakeAgent.text(200, "new"));
                var client = new AgentClient(tls, agent.port(), PATIENT)) {
            assertThatThrownBy(() -> answer(client.get(HERE, DIGEST, "/", "", "")))
                    .hasCauseInstanceOf(AgentException.class);

            tls.use(FakeAgent.key(renewed), FakeAgent.certificate(renewed));

            assertThat(answer(client.get(HERE, DIGEST, "/", "", ""))).isEqualTo("new");
        }
    }

    @Test
    void nothingIsSentWithoutACertificate() {
        try (var client = new AgentClient(new AgentTls(), 1, PATIENT)) {
            assertFails(() -> answer(client.get(HERE, DIGEST, "/", "", "")), Outcome.NO_AGENT, "no certificate");
        }
    }

    @Test
    void anAddressWithoutAServerIsUnreachable() {
        var agent = new FakeAgent(FakeAgent.text(200, "x"));
        int port = agent.port();
        agent.close();
        try (var client = new AgentClient(TLS, port, PATIENT)) {
            assertFails(() -> answer(client.get(HERE, DIGEST, "/", "", "")), Outcome.UNREACHABLE, "not reachable");
            assertFails(() -> answer(client.get("a b", DIGEST, "/", "", "")), Outcome.UNREACHABLE, "address");
        }
    }

    /** As a node without power: a queue of connections that is full drops the packets of another one. */
    @Test
    void anAddressThatDropsPacketsIsUnreachableAndNotSlow() throws Exception {
        InetAddress here = InetAddress.getLoopbackAddress();
        try (var full = new ServerSocket(0, 1, here);
                var first = new Socket(here, full.getLocalPort());
                var second = new Socket(here, full.getLocalPort());
                var client = new AgentClient(TLS, full.getLocalPort(), Duration.ofSeconds(1))) {
            assertThat(first.isConnected()).isEqualTo(second.isConnected());
            assertFails(
                    () -> answer(client.get(HERE, DIGEST, "/", "", "")), Outcome.UNREACHABLE, "cannot be connected to");
        }
    }

    @Test
    void anAnswerThatStopsHalfwayTimesOut() {
        var end = new CountDownLatch(1);
        try (var agent = new FakeAgent(FakeAgent.stalledAfter("{\"version\":", end));
                var client = new AgentClient(TLS, agent.port(), Duration.ofSeconds(3))) {
            assertFails(
                    () -> answer(client.get(HERE, DIGEST, "/", "", "")), Outcome.TIMEOUT, "did not answer within 3 s");
        }
    }

    @Test
    void anAnswerThatIsTooLongIsRefused() throws Exception {
        String longest = "x".repeat(AgentClient.LARGEST_ANSWER);
        try (var agent = new FakeAgent(exchange -> FakeAgent.text(
                                200, exchange.getRequestURI().getPath().equals("/longest") ? longest : longest + "x")
                        .to(exchange));
                var client = new AgentClient(TLS, agent.port(), PATIENT)) {
            assertThat(answer(client.get(HERE, DIGEST, "/longest", "", ""))).hasSize(AgentClient.LARGEST_ANSWER);
            assertFails(
                    () -> answer(client.get(HERE, DIGEST, "/longer", "", "")),
                    Outcome.INVALID,
                    "longer than 4194304 bytes");
        }
    }

    @Test
    void anErrorIsReportedWithTheAgentsSentence() {
        try (var agent = new FakeAgent(exchange -> {
                    switch (exchange.getRequestURI().getPath()) {
                        case "/gpu" ->
                            FakeAgent.text(404, "{\"error\":\"no GPU\\nGPU-1\"}")
                                    .to(exchange);
                        default -> FakeAgent.text(500, "<html>").to(exchange);
                    }
                });
                var client = new AgentClient(TLS, agent.port(), PATIENT)) {
            assertFails(
                    () -> answer(client.get(HERE, DIGEST, "/gpu", "", "")),
                    Outcome.REFUSED,
                    "status 404: no GPU GPU-1");
            assertFails(() -> answer(client.get(HERE, DIGEST, "/", "", "")), Outcome.REFUSED, "status 500");
        }
    }

    private static String answer(CompletableFuture<String> answer) throws Exception {
        return answer.get(30, TimeUnit.SECONDS);
    }

    private static void assertFails(ThrowingCallable request, Outcome outcome, String sentence) {
        assertThatThrownBy(request)
                .isInstanceOf(ExecutionException.class)
                .cause()
                .isInstanceOfSatisfying(
                        AgentException.class, e -> assertThat(e.outcome()).isEqualTo(outcome))
                .hasMessageContaining(sentence);
    }
}
