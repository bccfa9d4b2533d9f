package io.aliquot.scheduler.apiserver;

import static io.aliquot.testing.Await.await;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.tuple;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.aliquot.scheduler.apiserver.client.ListWatchClient;
import io.aliquot.scheduler.apiserver.client.ResourceType;
import io.aliquot.scheduler.apiserver.leadership.Leadership;
import io.aliquot.scheduler.apiserver.reader.LogReference;
import io.aliquot.scheduler.cluster.Cluster.EvictOutcome;
import io.aliquot.scheduler.cluster.Cluster.PodState;
import io.aliquot.scheduler.cluster.Cluster.WriteOutcome;
import io.aliquot.scheduler.cluster.NodeId;
import io.aliquot.scheduler.ledger.PodId;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.coordination.v1.Lease;
import io.fabric8.kubernetes.api.model.coordination.v1.LeaseBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.slf4j.LoggerFactory;

/** Over real HTTP, against a server that fails in the ways that each test wants. */
@Timeout(30)
class KubernetesClusterTest {
    private static final PodId POD = new PodId("default", "a", "uid-a");

    private interface Behaviour {
        void answer(HttpExchange exchange) throws IOException, InterruptedException;
    }

    private record Request(String line, String token, String type, String body) {}

    private final Deque<Behaviour> behaviours = new ArrayDeque<>();
    private final List<Request> requests = new ArrayList<>();
    private HttpServer server;
    private KubernetesClient client;
    private Leadership leadership;
    private Events events;
    private final SimpleMeterRegistry metrics = new SimpleMeterRegistry();
    private KubernetesCluster cluster;

    @BeforeEach
    void start() throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(Executors.newCachedThreadPool(task -> {
            var thread = new Thread(task, "server");
            thread.setDaemon(true);
            return thread;
        }));
        server.createContext("/", this::handle);
        server.start();
        Config config = Config.empty();
        config.setMasterUrl("http://127.0.0.1:" + server.getAddress().getPort());
        config.setOauthToken("a-token");
        client = new KubernetesClientBuilder().withConfig(config).build();
        leadership = new Leadership("pod", Duration.ofSeconds(1), lease -> {}, () -> true);
        events = new Events(client, "pod", Clock.systemUTC(), System::nanoTime);
        cluster = cluster(client, leadership, events, metrics);
    }

    static KubernetesCluster cluster(
            KubernetesClient client, Leadership leadership, Events events, MeterRegistry metrics) {
        return new KubernetesCluster(
                new ApiServerClient(client.getConfiguration()),
                client.getKubernetesSerialization(),
                leadership,
                new UnboundPodVersions(),
                Optional::empty,
                events,
                metrics,
                Clock.systemUTC(),
                System::nanoTime);
    }

    @AfterEach
    void stop() {
        leadership.close();
        events.close();
        client.close();
        server.stop(0);
    }

    private void handle(HttpExchange exchange) throws IOException {
        Behaviour behaviour;
        synchronized (this) {
            requests.add(new Request(
                    exchange.getRequestMethod() + " " + exchange.getRequestURI(),
                    exchange.getRequestHeaders().getFirst("Authorization"),
                    exchange.getRequestHeaders().getFirst("Content-Type"),
                    new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8)));
            behaviour = behaviours.poll();
        }
        try (exchange) {
            if (behaviour != null) {
                behaviour.answer(exchange);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @Test
    void anEvictionNamesThePodsUidAndAGracePeriodIfItIsNotThePodsOwn() {
        behaviours.add(answers(201, "{}"));
        behaviours.add(answers(201, "{}"));
        assertThat(cluster.evict(POD, Duration.ofMinutes(10))).isEqualTo(new EvictOutcome.Done());
        assertThat(cluster.evict(POD, false)).isEqualTo(new EvictOutcome.Done());
        assertThat(requests).extracting(Request::line).containsOnly("POST /api/v1/namespaces/default/pods/a/eviction");
        assertThat(requests.get(0).body()).contains("\"gracePeriodSeconds\":600", "\"uid\":\"uid-a\"");
        assertThat(requests.get(1).body()).doesNotContain("gracePeriodSeconds").contains("\"uid\":\"uid-a\"");
    }

    private static Behaviour answers(int code, String body) {
        return exchange -> {
            byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
            exchange.getResponseHeaders().set("Content-Type", "application/json");
            exchange.sendResponseHeaders(code, bytes.length);
            exchange.getResponseBody().write(bytes);
        };
    }

    private static Behaviour isBusy(String retryAfter) {
        return exchange -> {
            exchange.getResponseHeaders().set("Retry-After", retryAfter);
            answers(429, "Too many requests, please try again later.").answer(exchange);
        };
    }

    private WriteOutcome bind() {
        return cluster.bind(POD, 7, "n1", Map.of("aliquot.io/fence", "f/1"));
    }

    @Test
    void theMetricIs1WhileThisReplicaLeads() {
        leadership.onLease(lease("other_1"));
        assertThat(leads()).isZero();
        leadership.onLease(lease("pod_1"));
        await("leads", () -> leads() == 1);
        leadership.onLease(lease("other_2"));
        assertThat(leads()).isZero();
    }

    private double leads() {
        return metrics.get("aliquot.leader").gauge().value();
    }

    private static Lease lease(String holder) {
        return new LeaseBuilder()
                .withNewMetadata()
                .withUid("uid")
                .withResourceVersion("1")
                .endMetadata()
                .withNewSpec()
                .withHolderIdentity(holder)
                .withLeaseTransitions(1)
                .endSpec()
                .build();
    }

    @Test
    void aBindingNamesThePodsUidAndVersion() {
        behaviours.add(answers(201, "{\"kind\": \"Status\", \"status\": \"Success\"}"));
        assertThat(bind()).isEqualTo(new WriteOutcome.Done());
        Request request = requests.get(0);
        assertThat(request.line())
                .matches("POST /api/v1/namespaces/default/pods/a/binding\\?timeout=(2[0-9]{3}|3000)ms");
        assertThat(request.token()).isEqualTo("Bearer a-token");
        assertThat(request.body())
                .contains("\"uid\":\"uid-a\"", "\"resourceVersion\":\"7\"", "\"aliquot.io/fence\":\"f/1\"")
                .contains("\"labels\":{\"topology.aliquot.io/fenced\":\"true\"}")
                .contains("\"kind\":\"Node\"", "\"name\":\"n1\"");
    }

    @Test
    void aPodIsEndedByAnEvictionWithAGracePeriodOfItsOwn() {
        behaviours.add(answers(201, "{\"kind\": \"Status\", \"status\": \"Success\"}"));

        assertThat(cluster.end(POD, Duration.ofSeconds(5))).isEqualTo(new EvictOutcome.Done());
        assertThat(requests).singleElement().satisfies(request -> {
            assertThat(request.line()).startsWith("POST /api/v1/namespaces/default/pods/a/eviction");
            assertThat(request.body()).contains("\"gracePeriodSeconds\":5", "\"uid\":\"uid-a\"");
        });
    }

    /** 429: a budget refuses it. 500: the pod has two budgets. 409: its author changes it all the time. */
    @ParameterizedTest
    @ValueSource(ints = {429, 500, 409})
    void aPodWhoseEvictionIsRefusedIsDeleted(int refusal) {
        behaviours.add(answers(refusal, "{\"kind\": \"Status\", \"status\": \"Failure\", \"code\": " + refusal + "}"));
        behaviours.add(answers(200, "{\"kind\": \"Pod\"}"));

        assertThat(cluster.end(POD, Duration.ofSeconds(5))).isEqualTo(new EvictOutcome.Done());
        Request request = requests.getLast();
        assertThat(request.line()).startsWith("DELETE /api/v1/namespaces/default/pods/a");
        assertThat(request.line()).doesNotContain("eviction");
        assertThat(request.body()).contains("\"gracePeriodSeconds\":5", "\"uid\":\"uid-a\"");
        assertThat(requests).hasSize(2);
    }

    @ParameterizedTest
    @CsvSource({"404, Gone", "409, Gone", "429, Protected", "403, Failed", "500, Failed"})
    void theStatusCodeDecidesTheOutcomeOfAnEviction(int code, String outcome) {
        behaviours.add(answers(code, "{\"kind\": \"Status\", \"message\": \"because\", \"code\": " + code + "}"));
        assertThat(cluster.evict(POD, false).getClass().getSimpleName()).isEqualTo(outcome);
        assertThat(requests).hasSize(1);
    }

    @Test
    void anEvictionWithoutAnAnswerHasFailed() {
        behaviours.add(exchange -> {});
        assertThat(cluster.evict(POD, false)).isInstanceOf(EvictOutcome.Failed.class);
        assertThat(requests).hasSize(1);
    }

    @Test
    void pendingPodsAreWokenByAnAnnotationOfANode() {
        behaviours.add(answers(200, "{\"kind\": \"Node\"}"));
        assertThat(cluster.wake("n1")).isTrue();
        assertThat(requests).singleElement().satisfies(request -> {
            assertThat(request.line()).startsWith("PATCH /api/v1/nodes/n1");
            assertThat(request.type()).isEqualTo("application/merge-patch+json");
            assertThat(request.body()).contains("\"aliquot.io/wake\":\"");
        });
        behaviours.add(answers(403, "{\"kind\": \"Status\", \"message\": \"because\"}"));
        assertThat(cluster.wake("n1")).isFalse();
    }

    @ParameterizedTest
    @CsvSource({
        "400, Refused",
        "403, Refused",
        "404, Refused",
        "422, Refused",
        "408, Unknown",
        "409, Conflicts",
        "500, Unknown",
        "502, Unknown",
        "503, Unknown",
        "504, Unknown"
    })
    void theStatusCodeDecidesTheOutcome(int code, String outcome) {
        behaviours.add(answers(code, "{\"kind\": \"Status\", \"message\": \"because\", \"code\": " + code + "}"));
        WriteOutcome found = bind();
        assertThat(found.getClass().getSimpleName()).isEqualTo(outcome);
        assertThat(found.toString()).contains("because");
        assertThat(requests).hasSize(1);
    }

    @Test
    void aBusyServersRetryAfterIsFollowed() {
        behaviours.add(isBusy("1"));
        behaviours.add(answers(201, "{}"));
        long start = System.nanoTime();
        assertThat(bind()).isEqualTo(new WriteOutcome.Done());
        assertThat(System.nanoTime() - start).isBetween(TimeUnit.SECONDS.toNanos(1), TimeUnit.SECONDS.toNanos(3));
        assertThat(requests).hasSize(2);
    }

    @Test
    void aRetryAfterBeyondTheTimeoutEndsTheWriteAtOnce() {
        behaviours.add(isBusy("30"));
        long start = System.nanoTime();
        assertThat(bind())
                .isEqualTo(new WriteOutcome.Unheard(
                        "the API server is too busy: HTTP 429 Too many requests, please try" + " again later."));
        assertThat(System.nanoTime() - start).isLessThan(TimeUnit.SECONDS.toNanos(2));
    }

    @Test
    void aMissingAnswerMeansUnknown() {
        behaviours.add(exchange -> TimeUnit.SECONDS.sleep(5));
        long start = System.nanoTime();
        assertThat(bind()).isInstanceOf(WriteOutcome.Unknown.class);
        assertThat(System.nanoTime() - start).isLessThan(TimeUnit.SECONDS.toNanos(4));
    }

    /** Like a server that is killed while it works. */
    @Test
    void aConnectionThatEndsWithoutAnAnswerMeansUnknownAndNothingIsSentTwice() {
        behaviours.add(exchange -> {});
        assertThat(bind()).isInstanceOf(WriteOutcome.Unknown.class);
        assertThat(requests).hasSize(1);
    }

    @Test
    void aRequestRefusedForAReplacedTokenIsSentAgainWithTheNewOne(@TempDir Path folder) throws IOException {
        Path kubeconfig = folder.resolve("config");
        Files.writeString(kubeconfig, kubeconfig("old"));
        Config config = Config.fromKubeconfig(kubeconfig.toFile());
        try (KubernetesClient client =
                new KubernetesClientBuilder().withConfig(config).build()) {
            var api = new ApiServerClient(client.getConfiguration());
            var lists = new ListWatchClient(
                    new ApiServerClient(client.getConfiguration()), client.getKubernetesSerialization());
            behaviours.add(answers(201, "{}"));
            send(api);
            behaviours.add(answers(401, "Unauthorized"));
            assertThat(send(api)).as("there is no other token").isEqualTo(401);

            Files.writeString(kubeconfig, kubeconfig("new"));
            behaviours.add(answers(401, "Unauthorized"));
            behaviours.add(answers(201, "{}"));
            assertThat(send(api)).isEqualTo(201);
            assertThat(requests)
                    .extracting(Request::token, Request::body)
                    .containsExactly(
                            tuple("Bearer old", "the body"),
                            tuple("Bearer old", "the body"),
                            tuple("Bearer old", "the body"),
                            tuple("Bearer new", "the body"));

            Files.writeString(kubeconfig, kubeconfig("newest"));
            behaviours.add(answers(401, "Unauthorized"));
            behaviours.add(answers(200, ""));
            lists.watch(ResourceType.DISRUPTION_BUDGETS, "7").close();
            assertThat(requests.get(5).token()).isEqualTo("Bearer newest");

            Files.writeString(kubeconfig, kubeconfig("unknown"));
            behaviours.add(answers(401, "Unauthorized"));
            behaviours.add(answers(401, "Unauthorized"));
            assertThat(send(api)).as("it is sent again once only").isEqualTo(401);
            assertThat(requests).hasSize(8);
        }
    }

    private static int send(ApiServerClient api) throws IOException {
        return api.send("POST", "/path", "application/json", "the body", Duration.ofSeconds(5))
                .code();
    }

    private String kubeconfig(String token) {
        return """
                {"apiVersion": "v1", "kind": "Config", "current-context": "c",
                 "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                 "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:%d"}}],
                 "users": [{"name": "u", "user": {"token": "%s"}}]}""".formatted(server.getAddress().getPort(), token);
    }

    @Test
    void anUnreachableServerMeansUnheard() {
        server.stop(0);
        assertThat(bind()).isInstanceOf(WriteOutcome.Unheard.class);
    }

    @Test
    void bumpVersionPatchesThatVersionAloneAndThenReadsThePod() {
        behaviours.add(answers(200, "{}"));
        behaviours.add(answers(200, pod("8", "")));
        assertThat(cluster.bumpVersion(POD, 7).version()).hasValue(8);
        assertThat(requests.get(0).line()).startsWith("PATCH /api/v1/namespaces/default/pods/a?timeout=");
        assertThat(requests.get(0).type()).startsWith("application/merge-patch+json");
        assertThat(requests.get(0).body())
                .contains("\"uid\":\"uid-a\"", "\"resourceVersion\":\"7\"", "\"aliquot.io/moved-on\":\"7\"")
                .doesNotContain("spec", "status");
        assertThat(requests.get(1).line()).isEqualTo("GET /api/v1/namespaces/default/pods/a");
    }

    @Test
    void afterAFailedBumpThePodIsReadOnlyIfItMayHaveChanged() {
        behaviours.add(answers(403, "{}"));
        assertThat(cluster.bumpVersion(POD, 7)).isInstanceOf(PodState.Unreadable.class);
        behaviours.add(answers(409, "{}"));
        behaviours.add(answers(200, pod("9", "n1")));
        assertThat(cluster.bumpVersion(POD, 7)).isInstanceOf(PodState.Bound.class);
    }

    @Test
    void aPodWithAnotherUidCountsAsGone() {
        behaviours.add(answers(200, pod("8", "").replace("uid-a", "uid-b")));
        assertThat(cluster.read(POD)).isEqualTo(new PodState.Gone());
        behaviours.add(answers(404, "{\"kind\": \"Status\", \"code\": 404}"));
        assertThat(cluster.read(POD)).isEqualTo(new PodState.Gone());
        behaviours.add(answers(500, "{}"));
        assertThat(cluster.read(POD)).isInstanceOf(PodState.Unreadable.class);
        behaviours.add(answers(200, pod("8", "").replace("\"1\"", "\"1.5\"")));
        assertThat(cluster.read(POD)).isInstanceOf(PodState.Malformed.class);
    }

    private static String pod(String version, String node) {
        return """
                {"apiVersion": "v1", "kind": "Pod",
                 "metadata": {"name": "a", "namespace": "default", "uid": "uid-a", "resourceVersion": "%s"},
                 "spec": {"nodeName": "%s", "containers": [
                   {"name": "main", "image": "i", "resources": {"limits": {"aliquot.io/vgpu": "1"}}}]}}""".formatted(version, node);
    }

    /** A pod waits for memory, a minute later for cores, and then for memory again. */
    @Test
    void aRepeatedNoteIsANewEventAndARepeatedWarningIsNot() {
        for (int i = 0; i < 4; i++) {
            behaviours.add(answers(201, "{\"kind\": \"Event\", \"apiVersion\": \"v1\"}"));
        }
        for (String why : List.of("memory", "cores", "memory")) {
            cluster.warn(POD, "Reason", "a sentence");
            cluster.note(POD, "WaitingForGPU", why);
        }
        Supplier<List<String>> bodies = () -> {
            synchronized (this) {
                return requests.stream().map(Request::body).toList();
            }
        };
        await("four events", () -> bodies.get().size() == 4);
        assertThat(bodies.get())
                .extracting(body -> body.replaceAll(".*\"message\":\"([^\"]*)\".*", "$1"))
                .containsExactly("a sentence", "memory", "cores", "memory");
        assertThat(bodies.get())
                .extracting(body -> body.replaceAll(".*\"name\":\"(aliquot-scheduler-[^\"]*)\".*", "$1"))
                .doesNotHaveDuplicates();
    }

    /** kubectl describe node finds events by the node's uid; they belong to namespace default. */
    @Test
    void anEventAboutANodeNamesItsUid() {
        var node = new NodeId("n1", "uid-n1");
        behaviours.add(answers(201, "{\"kind\": \"Event\", \"apiVersion\": \"v1\"}"));
        behaviours.add(answers(201, "{\"kind\": \"Event\", \"apiVersion\": \"v1\"}"));
        cluster.warn(node, "GpuUnhealthy", "a sentence");
        cluster.note(node, "GpuHealthy", "another one");
        await("two events", () -> {
            synchronized (this) {
                return requests.size() == 2;
            }
        });
        synchronized (this) {
            assertThat(requests)
                    .extracting(Request::body)
                    .satisfiesExactly(
                            warning -> assertThat(warning)
                                    .contains("\"kind\":\"Node\"", "\"uid\":\"uid-n1\"", "\"namespace\":\"default\"")
                                    .contains("\"type\":\"Warning\"", "\"reason\":\"GpuUnhealthy\""),
                            note -> assertThat(note)
                                    .contains(
                                            "\"uid\":\"uid-n1\"", "\"type\":\"Normal\"", "\"reason\":\"GpuHealthy\""));
        }
    }

    @Test
    void aLogLineAboutAPodHasItsPodId() {
        Logger logger = (Logger) LoggerFactory.getLogger(Events.class);
        var lines = new ListAppender<ILoggingEvent>();
        lines.start();
        logger.addAppender(lines);
        try {
            cluster.warn(POD, "Reason", "a sentence");
        } finally {
            logger.detachAppender(lines);
        }
        assertThat(lines.list.get(0).getArgumentArray()).contains(POD);
        assertThat(lines.list.get(0).getFormattedMessage()).isEqualTo(POD + ": Reason a sentence");
        assertThat(LogReference.of(new NodeBuilder()
                        .withNewMetadata()
                        .withName("n1")
                        .endMetadata()
                        .build()))
                .isEqualTo("Node n1");
    }
}
