package io.aliquot.scheduler.extender;

import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.aliquot.scheduler.LedgerConfiguration;
import io.aliquot.scheduler.cluster.FakeCluster;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.server.health.Liveness;
import io.aliquot.scheduler.server.ports.RandomPorts;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.slf4j.LoggerFactory;
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
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** Calls the verbs as kube-scheduler does: the real program over real connections, with a {@link FakeCluster}. */
class ExtenderHttpTest {
    private static final HttpClient CLIENT = HttpClient.newHttpClient();
    private static final JsonMapper JSON = JsonMapper.shared();

    private static ConfigurableApplicationContext context;
    private static int extender;
    private static int health;

    @SpringBootConfiguration(proxyBeanMethods = false)
    @EnableAutoConfiguration(exclude = ErrorMvcAutoConfiguration.class)
    @ComponentScan(
            basePackages = {
                "io.aliquot.scheduler.server",
                "io.aliquot.scheduler.settings",
                "io.aliquot.scheduler.explain",
                "io.aliquot.scheduler.extender",
                "io.aliquot.scheduler.pending",
                "io.aliquot.scheduler.preemption",
                "io.aliquot.scheduler.recovery",
                "io.aliquot.scheduler.metrics"
            },
            excludeFilters = @Filter(type = FilterType.REGEX, pattern = ".*Test\\$.*"))
    @Import({RandomPorts.class, LedgerConfiguration.class})
    static class Program {
        @Bean
        FakeCluster cluster() {
            return new FakeCluster();
        }
    }

    @BeforeAll
    static void start() {
        context = new SpringApplicationBuilder(Program.class)
                .properties("POD_NAME=aliquot-1", "POD_NAMESPACE=aliquot")
                .run();
        extender = RandomPorts.extender(context);
        health = RandomPorts.health(context);
        ExtenderFixture.node(context.getBean(Ledger.class), 1);
        ExtenderFixture.node(context.getBean(Ledger.class), 2);
    }

    @AfterAll
    static void stop() {
        context.close();
    }

    @Test
    void filterPrioritizeAndBindAllocateAGpuAndUpdateTheMetrics() throws Exception {
        String pod = ExtenderFixture.podJson("a", "\"aliquot.io/vgpu\": \"1\", \"nvidia.com/gpumem\": \"3k\"", "");
        JsonNode filtered = ok("/filter", "{\"Pod\": " + pod + ", \"Nodes\": null, \"NodeNames\": [\"n1\", \"x\"]}");
        assertThat(filtered.toString())
                .isEqualTo("{\"NodeNames\":[\"n1\"],\"FailedNodes\":{},\"FailedAndUnresolvableNodes\":{\"x\":"
                        + "\"the Aliquot scheduler does not know the node yet\"},\"Error\":\"\"}");
        JsonNode scores = ok("/prioritize", "{\"Pod\": " + pod + ", \"NodeNames\": [\"n1\", \"n2\"]}");
        assertThat(scores.toString()).isEqualTo("[{\"Host\":\"n1\",\"Score\":10},{\"Host\":\"n2\",\"Score\":9}]");
        JsonNode bound =
                ok("/bind", "{\"PodName\":\"a\",\"PodNamespace\":\"default\",\"PodUID\":\"uid-a\",\"Node\":\"n1\"}");
        assertThat(bound.toString()).isEqualTo("{\"Error\":\"\"}");
        List<FakeCluster.Sent> sent = context.getBean(FakeCluster.class).sent;
        assertThat(sent.get(sent.size() - 1).annotations().get("aliquot.io/vgpu.main"))
                .contains(" memory=3000Mi ");
        assertThat(metrics())
                .contains("aliquot_extender_binds_total{outcome=\"bound\"}")
                .contains("aliquot_extender_request_seconds_bucket{verb=\"filter\"")
                .contains("aliquot_ledger_holdings{state=\"assumed\"} 1.0")
                .contains("aliquot_ledger_size{of=\"gpus\"} 4.0")
                .contains("aliquot_pending_pods{cause=\"memory\"} 0.0")
                .doesNotContain("gpu=\"GPU-")
                .contains("aliquot_node_gpu_memory_allocated_bytes{node=\"n1\"} 3.145728E9")
                .contains("aliquot_node_gpu_memory_stranded_bytes{node=\"n1\"} 0.0");
    }

    @Test
    void aFailedRequestIsLoggedOnceWithThePod() throws Exception {
        var log = (Logger) LoggerFactory.getLogger(Logger.ROOT_LOGGER_NAME);
        var lines = new ListAppender<ILoggingEvent>();
        lines.start();
        log.addAppender(lines);
        FakeCluster cluster = context.getBean(FakeCluster.class);
        cluster.meanwhile = () -> {
            throw new IllegalStateException("a bug");
        };
        try {
            HttpResponse<String> answer = post(
                    "/bind", "{\"PodName\":\"f\",\"PodNamespace\":\"default\",\"PodUID\":\"uid-f\",\"Node\":\"n1\"}");
            assertThat(answer.statusCode()).isEqualTo(500);
            assertThat(answer.body()).isEqualTo("internal error; the scheduler's log tells more\n");
        } finally {
            cluster.meanwhile = () -> {};
            log.detachAppender(lines);
        }
        assertThat(lines.list)
                .filteredOn(line -> line.getFormattedMessage().contains("uid-f"))
                .as("lines of all loggers about the pod")
                .singleElement()
                .satisfies(line -> {
                    assertThat(line.getArgumentArray()).contains(ExtenderFixture.id("f"));
                    assertThat(line.getThrowableProxy().getMessage()).isEqualTo("a bug");
                });
    }

    @Test
    void atLevelDebugEachDecisionIsALineWithItsReasons() throws Exception {
        var log = (Logger) LoggerFactory.getLogger(DecisionLog.class);
        var lines = new ListAppender<ILoggingEvent>();
        lines.start();
        log.addAppender(lines);
        String pod = ExtenderFixture.podJson("d", "\"aliquot.io/vgpu\": \"1\", \"nvidia.com/gpumem\": \"3k\"", "");
        String unknown = IntStream.range(0, 7)
                .mapToObj(i -> "\"x" + i + "\"")
                .collect(Collectors.joining(", ", "[\"n1\", ", "]"));
        try {
            ok("/filter", "{\"Pod\": " + pod + ", \"NodeNames\": [\"n1\"]}");
            assertThat(lines.list).as("at level info").isEmpty();

            log.setLevel(Level.DEBUG);
            ok("/filter", "{\"Pod\": " + pod + ", \"NodeNames\": " + unknown + "}");
            ok("/prioritize", "{\"Pod\": " + pod + ", \"NodeNames\": [\"n2\", \"n1\"]}");
            ok("/bind", "{\"PodName\":\"d\",\"PodNamespace\":\"default\",\"PodUID\":\"uid-d\",\"Node\":\"n9\"}");
        } finally {
            log.setLevel(null);
            log.detachAppender(lines);
        }
        String id = ExtenderFixture.id("d").toString();
        assertThat(lines.list)
                .extracting(ILoggingEvent::getFormattedMessage)
                .satisfiesExactly(
                        line -> assertThat(line)
                                .isEqualTo(
                                        "filter " + id + " nodes=8 fits=\"n1\" refused=\"the Aliquot scheduler does not"
                                                + " know the node yet: x0, x1, x2, x3, x4 and 2 more\" error=\"\""),
                        line -> assertThat(line).matches("prioritize " + id + " scores=\"n[12]: 10, n[12]: [0-9]+\""),
                        line -> assertThat(line)
                                .isEqualTo("bind " + id + " node=n9 outcome=conflict error=\"n9: the Aliquot scheduler"
                                        + " does not know the node yet\""));
    }

    /** Regression: the liveness probe did not ask the periodic tasks. */
    @Test
    void theVerbsTakePartInTheLivenessProbe() {
        assertThat(context.getBeansOfType(Liveness.class).values())
                .extracting(part -> part.getClass().getSimpleName())
                .contains("VerbMetrics");
    }

    /** kube-scheduler 1.35 also sends NodeNameToVictims, which is null. */
    @Test
    void preemptReturnsOneNodeWithItsVictims() throws Exception {
        Ledger ledger = context.getBean(Ledger.class);
        ExtenderFixture.node(ledger, 7);
        ledger.observeBound(BoundPods.of(
                ExtenderFixture.id("x"), "n7", 0, 1, HostResources.NONE, ExtenderFixture.share(7, 0, 80_000)));
        ledger.observeBound(BoundPods.of(
                ExtenderFixture.id("y"), "n7", 0, 2, HostResources.NONE, ExtenderFixture.share(7, 1, 80_000)));
        String pod = ExtenderFixture.podJson("high", "\"aliquot.io/vgpu\": \"1\", \"nvidia.com/gpumem\": \"3k\"", "")
                .replace("\"spec\": {", "\"spec\": {\"priority\": 10, ");
        String victims = "{\"n7\":{\"Pods\":[{\"UID\":\"uid-x\"}],\"NumPDBViolations\":0}}";
        String args = "{\"Pod\": " + pod + ", \"NodeNameToVictims\": null, \"NodeNameToMetaVictims\": " + victims + "}";
        assertThat(ok("/preempt", args).toString())
                .isEqualTo("{\"NodeNameToMetaVictims\":{\"n7\":{\"Pods\":[{\"UID\":\"uid-y\"}],"
                        + "\"NumPDBViolations\":0}}}");
        ledger.removeNode("n7");
        assertThat(ok("/preempt", args).toString()).isEqualTo("{\"NodeNameToMetaVictims\":{}}");
    }

    @Test
    void anAnswerAboutThousandsOfNodesIsComplete() throws Exception {
        String pod = ExtenderFixture.podJson("c", "\"aliquot.io/vgpu\": \"1\"", "");
        String names =
                IntStream.range(0, 5000).mapToObj(n -> "\"no-node-" + n + "\"").collect(Collectors.joining(", "));
        JsonNode filtered = ok("/filter", "{\"Pod\": " + pod + ", \"NodeNames\": [" + names + "]}");
        assertThat(filtered.get("FailedAndUnresolvableNodes")).hasSize(5000);
    }

    @Test
    void nodeObjectsInsteadOfNamesFailWithAnExplanation() throws Exception {
        String pod = ExtenderFixture.podJson("b", "\"aliquot.io/vgpu\": \"1\"", "");
        assertThat(ok("/filter", "{\"Pod\": " + pod + ", \"Nodes\": {}}")
                        .get("Error")
                        .asString())
                .contains("set nodeCacheCapable: true");
        assertThat(post("/prioritize", "{\"Pod\": " + pod + "}").statusCode()).isEqualTo(400);
    }

    @ParameterizedTest
    @ValueSource(strings = {"/filter", "/prioritize", "/bind", "/preempt"})
    void malformedOrIncompleteOrHugeInputIsRefusedInOneLine(String verb) throws Exception {
        for (String body : List.of("", "null", "{}", "[", "\"x\"", "{\"Pod\": 3}", "{\"PodName\": {}}", "\u00ff")) {
            HttpResponse<String> answer = post(verb, body);
            assertThat(answer.statusCode()).as(body).isEqualTo(400);
            assertThat(answer.body()).as(body).isEqualTo("the body is not the JSON that this path expects\n");
        }
        assertThat(post(verb, "{\"x\": \"" + "x".repeat(9 << 20) + "\"}").statusCode())
                .isEqualTo(413);
    }

    private static JsonNode ok(String verb, String body) throws Exception {
        HttpResponse<String> answer = post(verb, body);
        assertThat(answer.statusCode()).as(answer.body()).isEqualTo(200);
        // Without Content-Length kube-scheduler does not read to the end of the body and opens a new connection.
        assertThat(answer.headers().firstValueAsLong("Content-Length"))
                .hasValue(answer.body().length());
        return JSON.readTree(answer.body());
    }

    private static HttpResponse<String> post(String verb, String body) throws IOException, InterruptedException {
        return CLIENT.send(
                HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + extender + verb))
                        .header("Content-Type", "application/json")
                        .POST(BodyPublishers.ofString(body))
                        .build(),
                BodyHandlers.ofString());
    }

    private static String metrics() throws IOException, InterruptedException {
        return CLIENT.send(
                        HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + health + "/metrics"))
                                .build(),
                        BodyHandlers.ofString())
                .body();
    }
}
