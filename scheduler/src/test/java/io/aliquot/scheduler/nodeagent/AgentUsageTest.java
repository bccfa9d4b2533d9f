package io.aliquot.scheduler.nodeagent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import com.sun.net.httpserver.HttpExchange;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.api.usage.NodeAllocation;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerListener;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.testing.Await;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

/** Over real TLS with an agent on several loopback addresses. */
class AgentUsageTest {
    private static final Duration NEWS_AFTER = Duration.ofSeconds(1);
    private static final Duration TICK = Duration.ofMillis(100);
    private static final int TICKS_OF_A_PERIOD = (int) AgentUsage.PERIOD.dividedBy(TICK);

    private final CountDownLatch end = new CountDownLatch(1);
    /** What is answered at an address. */
    private final Map<String, FakeAgent.Answer> answers = new ConcurrentHashMap<>();

    private final FakeAgent agent = new FakeAgent(exchange -> answers.getOrDefault(
                    exchange.getLocalAddress().getAddress().getHostAddress(), FakeAgent.text(500, ""))
            .to(exchange));
    /** What nodes say about the certificate of their agent, other than the usual. */
    private final Map<String, Optional<String>> certificates = new ConcurrentHashMap<>();

    private final AtomicLong now = new AtomicLong();
    private final Map<String, Boolean> readiness = new ConcurrentHashMap<>();
    private final SimpleMeterRegistry metrics = new SimpleMeterRegistry();
    private final AgentClient client =
            new AgentClient(FakeAgent.presenting(FakeAgent.SCHEDULERS), agent.port(), Duration.ofSeconds(8));
    private final Ledger ledger = new Ledger(now::get, new LedgerListener() {
        @Override
        public void capacityFreed(String node) {}

        @Override
        public void overallocated(String node, String gpu) {}
    });
    private final AgentUsage usage =
            new AgentUsage(client, this::certificate, readiness::put, ledger, metrics, now::get);
    private final ListAppender<ILoggingEvent> log = new ListAppender<>();

    @BeforeEach
    void start() {
        log.start();
        ((Logger) LoggerFactory.getLogger(AgentUsage.class)).addAppender(log);
    }

    @AfterEach
    void stop() {
        ((Logger) LoggerFactory.getLogger(AgentUsage.class)).detachAppender(log);
        end.countDown();
        client.close();
        agent.close();
    }

    @Test
    void aNodesUsageIsItsAgentsLatestReportForAMinute() {
        answers.put("127.0.0.1", reportOf("n1"));
        usage.putAgent("n1", true, "127.0.0.1");
        assertThat(usage.usage("n1")).isEmpty();

        period();

        awaitOutcome("done", 1);
        assertThat(usage.usage("n1")).map(UsageReport::node).contains("n1");
        assertThat(usage.all()).hasSize(1);
        answers.put("127.0.0.1", FakeAgent.text(503, ""));
        now.addAndGet(AgentUsage.VALID.toNanos() - AgentUsage.PERIOD.toNanos());
        assertThat(usage.usage("n1")).isPresent();
        now.addAndGet(AgentUsage.PERIOD.toNanos() + 1);
        assertThat(usage.usage("n1")).isEmpty();
        assertThat(usage.all()).isEmpty();
    }

    @Test
    void anAgentThatHasAnsweredIsToldWhatIsAllocatedOnItsNodeAndWithinASecondWhatChanges() {
        ExtenderFixture.node(ledger, 1);
        bind("a", 1, 30);
        List<String> told = new CopyOnWriteArrayList<>();
        answers.put("127.0.0.1", exchange -> {
            told.add(new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8));
            reportOf("n1").to(exchange);
        });
        usage.putAgent("n1", true, "127.0.0.1");
        while (told.isEmpty()) {
            elapse(TICK);
        }
        elapse(NEWS_AFTER);

        assertThat(told).hasSize(2);
        assertThat(told.get(0)).as("its certificate is not known yet").isEmpty();
        NodeAllocation allocation = NodeAllocation.parse(told.get(1));
        assertThat(allocation.gpus()).hasSize(2);
        assertThat(allocation.gpus().get(0).allocated()).isEqualTo(new NodeAllocation.Amount(50_000, 30, 1));
        assertThat(allocation.gpus().get(1).allocated()).isEqualTo(new NodeAllocation.Amount(0, 0, 0));
        assertThat(allocation.limits()).singleElement().satisfies(limit -> {
            assertThat(limit.container().pod()).isEqualTo("a");
            assertThat(limit.memoryMiB()).isEqualTo(50_000);
            assertThat(limit.cores()).isEqualTo(30);
            assertThat(limit.priority()).isEqualTo(Priority.NORMAL);
        });

        bind("b", 1, 20);
        elapse(NEWS_AFTER);
        bind("a", 2, 40); // a resize
        ledger.observeEnded("uid-b");
        elapse(NEWS_AFTER);
        assertThat(told).hasSize(4);
        assertThat(told.subList(2, 4))
                .extracting(text -> NodeAllocation.parse(text).limits().stream()
                        .mapToInt(NodeAllocation.Limit::cores)
                        .sum())
                .containsExactly(50, 40);
        ledger.setAgentReady("n1", false); // changes no limit
        elapse(AgentUsage.PERIOD);
        assertThat(told).as("the turn stays").hasSize(5);
    }

    /** Regression: the next turn followed after up to 9 s. */
    @Test
    void anAgentThatIsAboutToAcceptThisReplicaIsAskedEverySecondUntilItDoes() {
        var asked = new AtomicInteger();
        answers.put("127.0.0.1", exchange -> {
            boolean accepts = asked.incrementAndGet() > 3;
            (accepts ? reportOf("n1") : FakeAgent.text(500, "")).to(exchange);
        });
        usage.expectAnswer("unknown");
        usage.putAgent("n1", true, "");
        elapse(AgentUsage.PERIOD);
        usage.expectAnswer("n1");
        usage.putAgent("n1", true, "127.0.0.1");
        elapse(Duration.ofSeconds(4));

        assertThat(usage.usage("n1")).isPresent();
        assertThat(asked).hasValue(4);
    }

    /** Regression: its limit stayed until the pod's end, and the pod's memory was taken for the sum. */
    @Test
    void anAgentIsToldTheLimitsOfContainersThatHaveNotEndedAndWhatTheirPodHolds() {
        ExtenderFixture.node(ledger, 1);
        List<String> told = new CopyOnWriteArrayList<>();
        answers.put("127.0.0.1", exchange -> {
            told.add(new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8));
            reportOf("n1").to(exchange);
        });
        var vgpus = new Vgpus(List.of(BoundPods.vgpu(Gpus.uuid(1, 0), new GpuAmount(60_000, 60, 1, false))));
        ContainerShare main = BoundPods.main(Gpus.uuid(1, 0), new GpuAmount(40_000, 40, 1, false));
        ledger.observeBound(BoundPods.of(
                ExtenderFixture.id("a"), "n1", 1, new ContainerShare("init", ContainerKind.INIT, vgpus), main));
        usage.putAgent("n1", true, "127.0.0.1");
        while (told.size() < 2) {
            elapse(TICK);
        }
        ledger.observeBound(BoundPods.of(
                ExtenderFixture.id("a"), "n1", 2, new ContainerShare("init", ContainerKind.INIT, vgpus, true), main));
        elapse(NEWS_AFTER);

        assertThat(told).hasSize(3);
        assertThat(told.subList(1, 3))
                .map(NodeAllocation::parse)
                .allSatisfy(allocation -> assertThat(allocation.pods())
                        .containsExactly(new NodeAllocation.OfPod("default", "a", 60_000, 60)))
                .extracting(allocation -> allocation.limits().stream()
                        .map(limit -> limit.container().container())
                        .toList())
                .containsExactly(List.of("init", "main"), List.of("main"));
    }

    @Test
    void aReaderGetsFiguresOfTheLastSecond() {
        var asked = new AtomicInteger();
        answers.put("127.0.0.1", exchange -> {
            asked.incrementAndGet();
            reportOf("n1").to(exchange);
        });
        usage.refresh(List.of("n1"));
        usage.putAgent("n1", true, "127.0.0.1");
        while (usage.usage("n1").isEmpty()) {
            elapse(TICK);
        }
        elapse(NEWS_AFTER);
        assertThat(asked).hasValue(1);

        usage.refresh(List.of("n1", "unknown"));
        usage.refresh(List.of("n1"));
        assertThat(asked).as("at most once a second").hasValue(2);
    }

    private void bind(String pod, long version, int cores) {
        ledger.observeBound(BoundPods.of(
                ExtenderFixture.id(pod),
                "n1",
                version,
                BoundPods.main(Gpus.uuid(1, 0), new GpuAmount(50_000, cores, 1, false))));
    }

    @Test
    void agentsAreAskedOnceInEachPeriodAndSpreadOverIt() {
        var asked = new AtomicInteger();
        answers.put("127.0.0.1", exchange -> {
            asked.incrementAndGet();
            FakeAgent.text(500, "").to(exchange);
        });
        IntStream.range(0, 60).forEach(node -> usage.putAgent("node-" + node, true, "127.0.0.1"));
        int most = 0;
        for (int round = 1; round <= 2; round++) {
            for (int tick = 0; tick < TICKS_OF_A_PERIOD; tick++) {
                double before = total();
                int started = agent.requests.get();
                tick();
                Await.await("no request is under way", () -> usage.underWay() == 0);
                most = Math.max(most, agent.requests.get() - started);
                assertThat(total() - before).isEqualTo(agent.requests.get() - started);
            }
            assertThat(asked).hasValue(60 * round);
        }
        assertThat(most).as("0.7 on average").isLessThan(6);
    }

    @Test
    void slowAgentsAndFailingOnesDelayNoOther() {
        answers.put("127.0.0.1", exchange -> FakeAgent.await(end));
        answers.put("127.0.0.2", reportOf("fine"));
        for (int i = 0; i < 50; i++) {
            usage.putAgent("slow-" + i, true, "127.0.0.1");
            usage.putAgent("failing-" + i, true, "127.0.0.3");
        }
        usage.putAgent("fine", true, "127.0.0.2");

        period();

        Await.await(
                "the usage of the node whose agent answers",
                () -> usage.usage("fine").isPresent());
        assertThat(fetches("timeout")).isZero();
        awaitOutcome("timeout", 50);
        assertThat(usage.all()).hasSize(1);
    }

    @Test
    void anotherVersionGarbageAndTheReportOfAnotherNodeGiveNoFiguresAndOneLineInTheLogEach() {
        answers.put("127.0.0.1", FakeAgent.text(200, "{\"node\":\"n1\"}"));
        answers.put("127.0.0.2", FakeAgent.text(200, "<html>"));
        answers.put("127.0.0.3", reportOf("other"));
        for (int i = 0; i < 10; i++) {
            usage.putAgent("new-" + i, true, "127.0.0.1");
        }
        usage.putAgent("garbage", true, "127.0.0.2");
        usage.putAgent("liar", true, "127.0.0.3");

        period();
        awaitOutcome("invalid", 12);
        period();
        awaitOutcome("invalid", 24);

        assertThat(usage.all()).isEmpty();
        assertThat(log.list)
                .extracting(ILoggingEvent::getFormattedMessage)
                .hasSize(3)
                .anySatisfy(
                        line -> assertThat(line).contains("[\"at\"] is missing").contains("another version"))
                .anySatisfy(line -> assertThat(line).contains("node garbage").contains("JSON"))
                .anySatisfy(line -> assertThat(line).contains("the usage of node liar"));
    }

    @Test
    void anAgentThatIsNotReadyIsNotAskedAndOneThatMovedIsAskedAtItsNewAddress() {
        answers.put("127.0.0.1", reportOf("n1"));
        usage.putAgent("n1", true, "127.0.0.2");
        usage.putAgent("n1", false, "");
        period();
        assertThat(usage.underWay()).isZero();
        assertThat(total()).isZero();

        usage.putAgent("n1", true, "127.0.0.1");
        period();
        awaitOutcome("done", 1);
        usage.removeAgent("n1");
        assertThat(usage.usage("n1")).isEmpty();
    }

    /** The node may have lost its power: its kubelet can no longer report that the agent's pod is not ready. */
    @Test
    void anAgentThatCannotBeConnectedToFor15SecondsIsNotReadyUntilItAnswers() {
        answers.put("127.0.0.1", reportOf("n1"));
        usage.putAgent("n1", true, "127.0.0.1");
        elapse(AgentUsage.PERIOD);
        assertThat(fetches("done")).isEqualTo(1);
        agent.close();
        while (fetches("unreachable") == 0) {
            elapse(TICK); // to the end of the period in which it answered
        }
        assertThat(readiness).containsEntry("n1", true);

        elapse(AgentUsage.SILENCE.minus(AgentUsage.PERIOD).plus(TICK));

        assertThat(readiness).containsEntry("n1", false);
        usage.putAgent("n1", true, "127.0.0.1"); // its pod changes otherwise
        assertThat(readiness).containsEntry("n1", false);
        try (var restarted =
                new FakeAgent(FakeAgent.AGENTS, FakeAgent.SCHEDULERS, agent.port(), FakeAgent.text(503, "starting"))) {
            elapse(AgentUsage.PERIOD.plus(TICK));
            assertThat(restarted.requests).hasPositiveValue();
            assertThat(readiness).containsEntry("n1", true);
        }
    }

    /** Regression: all agents had one key, so each could answer for the agent of every other node. */
    @Test
    void anAgentWithTheKeyOfAnotherNodeGivesNoFiguresAndItsNodeStays() {
        answers.put("127.0.0.1", reportOf("n1"));
        certificates.put("n1", Optional.of(FakeAgent.digest(FakeAgent.keys("aliquot-node-agent"))));
        usage.putAgent("n1", true, "127.0.0.1");

        elapse(AgentUsage.PERIOD.multipliedBy(3));

        assertThat(fetches("untrusted")).isEqualTo(3);
        assertThat(total()).as("without second tries").isEqualTo(3);
        assertThat(usage.usage("n1")).isEmpty();
        assertThat(readiness).containsEntry("n1", true);
        certificates.put("n1", Optional.empty());
        elapse(AgentUsage.PERIOD);
        assertThat(agent.requests).as("a node that names no certificate").hasValue(3);

        certificates.remove("n1"); // its agent has started again and says which certificate it has
        elapse(AgentUsage.PERIOD);

        assertThat(usage.usage("n1")).isPresent();
    }

    /** A program that connects to the agents again and again could stop all scheduling otherwise. */
    @Test
    void anAgentThatCanBeConnectedToIsReadyAlsoIfItDoesNotAnswer() {
        var impatient = new AgentUsage(
                new AgentClient(FakeAgent.presenting(FakeAgent.SCHEDULERS), agent.port(), Duration.ofMillis(900)),
                this::certificate,
                readiness::put,
                ledger,
                metrics,
                now::get);
        IntStream.rangeClosed(1, 3).forEach(i -> {
            answers.put("127.0.0." + i, reportOf("n" + i));
            impatient.putAgent("n" + i, true, "127.0.0." + i);
        });
        impatient.putAgent("starting", false, "");
        while (impatient.all().size() < 3) {
            elapse(impatient, TICK);
        }

        answers.put("127.0.0.1", FakeAgent.stalledAfter("{", end));
        answers.put("127.0.0.2", HttpExchange::close);
        answers.put("127.0.0.3", FakeAgent.text(503, ""));
        elapse(impatient, AgentUsage.SILENCE.plus(TICK));

        assertThat(fetches("timeout")).isPositive();
        assertThat(fetches("broken")).isPositive();
        assertThat(fetches("refused")).isPositive();
        assertThat(readiness)
                .containsExactlyInAnyOrderEntriesOf(Map.of("n1", true, "n2", true, "n3", true, "starting", false));
    }

    /** With an agent that cannot tell, and with one that sees the pod, the share stays. */
    @Test
    void theShareOfADeletedPodIsFreeWhenTheNodesAgentHasNotFoundThePodForHalfAMinute() {
        String gpu = Gpus.uuid(1, 0);
        ledger.observeBound(BoundPods.of(
                new PodId("team", "a", "uid-a"), "n1", 1, BoundPods.main(gpu, new GpuAmount(800, 0, 1, false))));
        var queries = ConcurrentHashMap.newKeySet();
        UsageReport report = new UsageReport(Instant.EPOCH, "n1", List.of(), List.of(), List.of());
        Map<String, Set<String>> pods = new ConcurrentHashMap<>();
        answers.put("127.0.0.1", exchange -> {
            queries.add(exchange.getRequestURI().toString());
            FakeAgent.text(
                            200,
                            report.withPods(Optional.ofNullable(pods.get("n1"))).print())
                    .to(exchange);
        });
        usage.putAgent("n1", true, "127.0.0.1");
        elapse(AgentUsage.PERIOD);
        assertThat(queries).as("no pod is deleted").containsExactly("/v1/usage");
        ledger.deletedBeforeEnd("uid-a");
        elapse(Duration.ofMinutes(2));
        assertThat(queries).contains("/v1/usage?pods");
        assertThat(log.list)
                .anySatisfy(line ->
                        assertThat(line.getFormattedMessage()).contains("node n1 cannot tell which pods the node has"));
        pods.put("n1", Set.of("uid-a", "uid-b"));
        elapse(Duration.ofMinutes(2));
        pods.put("n1", Set.of("uid-b"));
        elapse(Duration.ofSeconds(27));
        assertThat(ledger.nodeOf("uid-a")).contains("n1");

        elapse(Duration.ofSeconds(18));

        Await.await("the share is free", () -> ledger.nodeOf("uid-a").isEmpty());
    }

    @Test
    void historyIsFetchedOnDemand() throws Exception {
        String history = "{\"end\":\"2026-11-26T20:00:00Z\",\"stepSeconds\":1,"
                + "\"gpu\":{\"usedMiB\":[1,null],\"utilizationPercent\":[0,2]},\"containers\":[],\"health\":[]}";
        answers.put("127.0.0.1", exchange -> {
            boolean known = exchange.getRequestURI().toString().equals("/v1/history?gpu=" + Gpus.uuid(1, 0));
            (known ? FakeAgent.text(200, history) : FakeAgent.text(404, "{\"error\":\"this node has no such GPU\"}"))
                    .to(exchange);
        });
        usage.putAgent("n1", true, "127.0.0.1");
        usage.putAgent("starting", false, "");

        assertThat(usage.history("n1", Gpus.uuid(1, 0))).isEqualTo(UsageHistory.parse(history));
        assertThatThrownBy(() -> usage.history("n1", Gpus.uuid(1, 1)))
                .isInstanceOf(AgentException.class)
                .hasMessage("the agent of node n1: it answers with status 404: this node has no such GPU");
        assertThatThrownBy(() -> usage.history("n1", "x&y")).isInstanceOf(AgentException.class);
        assertThatThrownBy(() -> usage.history("starting", Gpus.uuid(1, 0)))
                .isInstanceOf(AgentException.class)
                .hasMessage("node starting has no ready node agent");
        answers.put("127.0.0.1", FakeAgent.text(200, "{}"));
        assertThatThrownBy(() -> usage.history("n1", Gpus.uuid(1, 0)))
                .isInstanceOf(AgentException.class)
                .hasMessageContaining("is missing");
    }

    private Optional<String> certificate(String node) {
        return certificates.getOrDefault(node, Optional.of(FakeAgent.digest(FakeAgent.AGENTS)));
    }

    private static FakeAgent.Answer reportOf(String node) {
        return FakeAgent.text(200, new UsageReport(Instant.EPOCH, node, List.of(), List.of(), List.of()).print());
    }

    private void period() {
        for (int i = 0; i < TICKS_OF_A_PERIOD; i++) {
            tick();
        }
    }

    /** Lets every answer arrive before the next tick. */
    private void elapse(Duration time) {
        elapse(usage, time);
    }

    private void elapse(AgentUsage asking, Duration time) {
        for (long i = time.dividedBy(TICK); i > 0; i--) {
            now.addAndGet(TICK.toNanos());
            asking.fetchDue();
            Await.await("no request is under way", () -> asking.underWay() == 0);
        }
    }

    private void tick() {
        now.addAndGet(TICK.toNanos());
        usage.fetchDue();
    }

    private void awaitOutcome(String outcome, int times) {
        Await.await(times + " fetches with outcome " + outcome, () -> fetches(outcome) >= times);
        assertThat(fetches(outcome)).isEqualTo(times);
    }

    private double fetches(String outcome) {
        return metrics.get("aliquot.agent.fetches")
                .tag("outcome", outcome)
                .counter()
                .count();
    }

    private double total() {
        return metrics.get("aliquot.agent.fetches").counters().stream()
                .mapToDouble(Counter::count)
                .sum();
    }
}
