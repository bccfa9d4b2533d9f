package io.aliquot.scheduler.nodeagent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.scheduler.nodeagent.AgentException.Outcome;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.security.KeyStore;
import java.time.Clock;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Test;

/** Over real TLS on the loopback interface. */
class AgentClientTest {
    /** On a busy machine. */
    private static final Duration PATIENT = Duration.ofSeconds(30);

    private static final Duration SHORT = Duration.ofSeconds(10);

    private static final String HERE = "127.0.0.1";
    private static final AgentTls TLS = FakeAgent.trusting(FakeAgent.SCHEDULERS, FakeAgent.AGENTS);

    private final Clock clock = Clock.systemUTC();

    @Test
    void theAgentGetsTheRequestAndTheClientItsAnswer() throws Exception {
        var asked = new AtomicReference<String>("");
        try (var agent = new FakeAgent(exchange -> {
                    asked.set(exchange.getRequestMethod() + " " + exchange.getRequestURI());
                    FakeAgent.text(200, "{\"ä\":1}").to(exchange);
                });
                var client = new AgentClient(TLS, clock, agent.port(), PATIENT)) {
            assertThat(answer(client.get(HERE, "/v1/history", "gpu=GPU-1"))).isEqualTo("{\"ä\":1}");
        }
        assertThat(asked.get()).isEqualTo("GET /v1/history?gpu=GPU-1");
    }

    @Test
    void anAgentWithAnotherCertificateIsNotAsked() {
        KeyStore other = FakeAgent.keys("aliquot-node-agent"); // the same name, another key
        try (var agent = new FakeAgent(other, FakeAgent.SCHEDULERS, 0, FakeAgent.text(200, "secret"));
                var client = new AgentClient(TLS, clock, agent.port(), PATIENT)) {
            assertFails(() -> answer(client.get(HERE, "/v1/usage", "")), Outcome.UNTRUSTED, "not the node agents'");
            assertThat(agent.requests).hasValue(0);
        }
    }

    @Test
    void anExpiredCertificateIsNotAccepted() {
        Clock later = Clock.offset(clock, Duration.ofDays(3650));
        try (var agent = new FakeAgent(FakeAgent.text(200, "old"));
                var client = new AgentClient(TLS, later, agent.port(), PATIENT)) {
            assertFails(() -> answer(client.get(HERE, "/v1/usage", "")), Outcome.UNTRUSTED, "");
            assertThat(agent.requests).hasValue(0);
        }
    }

    /** With TLS 1.3 the refusal follows the client's handshake, as an alert or as the connection's end. */
    @Test
    void anAgentThatDoesNotKnowTheSchedulersCertificateAnswersNothing() {
        AgentTls stranger = FakeAgent.trusting(FakeAgent.keys("aliquot-webhook"), FakeAgent.AGENTS);
        try (var agent = new FakeAgent(FakeAgent.text(200, "x"));
                var client = new AgentClient(stranger, clock, agent.port(), PATIENT)) {
            assertThatThrownBy(() -> answer(client.get(HERE, "/v1/usage", "")))
                    .cause()
                    .isInstanceOfSatisfying(
                            AgentException.class,
                            failure -> assertThat(failure.outcome()).isIn(Outcome.UNTRUSTED, Outcome.BROKEN));
            assertThat(agent.requests).hasValue(0);
        }
    }

    @Test
    void renewedCertificatesAreUsedFromTheNextRequestOn() throws Exception {
        KeyStore renewed = FakeAgent.keys("aliquot-node-agent");
        AgentTls tls = FakeAgent.trusting(FakeAgent.SCHEDULERS, FakeAgent.AGENTS);
        try (var agent = new FakeAgent(renewed, FakeAgent.SCHEDULERS, 0, FakeAgent.text(200, "new"));
                var client = new AgentClient(tls, clock, agent.port(), PATIENT)) {
            assertFails(() -> answer(client.get(HERE, "/", "")), Outcome.UNTRUSTED, "");

            tls.use(
                    FakeAgent.key(FakeAgent.SCHEDULERS),
                    FakeAgent.certificate(FakeAgent.SCHEDULERS),
                    Set.of(FakeAgent.certificate(FakeAgent.AGENTS), FakeAgent.certificate(renewed)));

            assertThat(answer(client.get(HERE, "/", ""))).isEqualTo("new");
        }
    }

    @Test
    void nothingIsSentWithoutACertificate() {
        try (var client = new AgentClient(new AgentTls(), clock, 1, PATIENT)) {
            assertFails(() -> answer(client.get(HERE, "/", "")), Outcome.NO_AGENT, "no certificate");
        }
    }

    @Test
    void anAddressWithoutAServerIsUnreachable() {
        var agent = new FakeAgent(FakeAgent.text(200, "x"));
        int port = agent.port();
        agent.close();
        try (var client = new AgentClient(TLS, clock, port, PATIENT)) {
            assertFails(() -> answer(client.get(HERE, "/", "")), Outcome.UNREACHABLE, "not reachable");
            assertFails(() -> answer(client.get("a b", "/", "")), Outcome.UNREACHABLE, "address");
        }
    }

    /** As a node without power: a queue of connections that is full drops the packets of another one. */
    @Test
    void anAddressThatDropsPacketsIsUnreachableAndNotSlow() throws Exception {
        InetAddress here = InetAddress.getLoopbackAddress();
        try (var full = new ServerSocket(0, 1, here);
                var first = new Socket(here, full.getLocalPort());
                var second = new Socket(here, full.getLocalPort());
                var client = new AgentClient(TLS, clock, full.getLocalPort(), Duration.ofSeconds(1))) {
            assertThat(first.isConnected()).isEqualTo(second.isConnected());
            assertFails(() -> answer(client.get(HERE, "/", "")), Outcome.UNREACHABLE, "cannot be connected to");
        }
    }

    /** Each of a hundred slow agents holds a request until its timeout; no thread waits for them. */
    @Test
    void slowAgentsDelayNoOther() throws Exception {
        var end = new CountDownLatch(1);
        try (var agent = new FakeAgent(exchange -> {
                    if (exchange.getRequestURI().getPath().equals("/slow")) {
                        FakeAgent.await(end);
                    }
                    FakeAgent.text(200, "fast").to(exchange);
                });
                var client = new AgentClient(TLS, clock, agent.port(), SHORT)) {
            List<CompletableFuture<String>> waiting = Stream.generate(() -> client.get(HERE, "/slow", ""))
                    .limit(100)
                    .toList();
            assertThat(answer(client.get(HERE, "/fast", ""))).isEqualTo("fast");
            for (CompletableFuture<String> one : waiting) {
                assertFails(() -> answer(one), Outcome.TIMEOUT, "did not answer within 10 s");
            }
        }
    }

    @Test
    void anAnswerThatStopsHalfwayTimesOut() {
        var end = new CountDownLatch(1);
        try (var agent = new FakeAgent(FakeAgent.stalledAfter("{\"version\":", end));
                var client = new AgentClient(TLS, clock, agent.port(), SHORT)) {
            assertFails(() -> answer(client.get(HERE, "/", "")), Outcome.TIMEOUT, "did not answer within 10 s");
        }
    }

    @Test
    void anAnswerThatIsTooLongIsRefused() throws Exception {
        String longest = "x".repeat(AgentClient.LARGEST_ANSWER);
        try (var agent = new FakeAgent(exchange -> FakeAgent.text(
                                200, exchange.getRequestURI().getPath().equals("/longest") ? longest : longest + "x")
                        .to(exchange));
                var client = new AgentClient(TLS, clock, agent.port(), PATIENT)) {
            for (int i = 0; i < 20; i++) { // more than all answers together may have
                assertThat(answer(client.get(HERE, "/longest", ""))).hasSize(AgentClient.LARGEST_ANSWER);
            }
            assertFails(() -> answer(client.get(HERE, "/longer", "")), Outcome.INVALID, "longer than 4194304 bytes");
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
                var client = new AgentClient(TLS, clock, agent.port(), PATIENT)) {
            assertFails(() -> answer(client.get(HERE, "/gpu", "")), Outcome.REFUSED, "status 404: no GPU GPU-1");
            assertFails(() -> answer(client.get(HERE, "/", "")), Outcome.REFUSED, "status 500");
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
