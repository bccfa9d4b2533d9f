package io.aliquot.scheduler.nodeagent;

import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.aliquot.api.UnchargedUse;
import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.apiserver.Cluster.EvictOutcome;
import io.aliquot.scheduler.apiserver.NodeId;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.preemption.Evictions;
import io.aliquot.scheduler.settings.OverusePolicy;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

/** Pod {@code a} holds 3000 MiB of a GPU of node 1. */
class OveruseMonitorTest {
    private static final Duration SECOND = Duration.ofSeconds(1);
    private static final String EVENT =
            "a GpuMemoryOveruse: container main uses 5000 MiB of " + Gpus.uuid(1, 0) + ", its limit is 3000 MiB";

    private final ExtenderFixture fixture = new ExtenderFixture();
    private final NodeReports reports = new NodeReports();
    private final Evictions evictions = new Evictions(fixture.cluster, fixture.metrics, fixture.now::get);
    private final ListAppender<ILoggingEvent> log = new ListAppender<>();
    private OveruseMonitor monitor = monitor(OverusePolicy.REPORT);
    private BoundPod a;

    @BeforeEach
    void start() {
        log.start();
        ((Logger) LoggerFactory.getLogger(OveruseMonitor.class)).addAppender(log);
        a = fixture.holds("a", 1, 0, 3000, 0);
        fixture.pass(OveruseMonitor.OLDEST_REPORT);
    }

    @AfterEach
    void stop() {
        ((Logger) LoggerFactory.getLogger(OveruseMonitor.class)).detachAppender(log);
    }

    @Test
    void thePodGetsOneEventInTenMinutesAndIsCountedWhileTheAgentReportsIt() {
        for (int second = 0; second < 600; second++) {
            report("n1", overuse("a", 5000 + second));
            monitor.check();
            fixture.pass(SECOND);
        }
        assertThat(fixture.cluster.warnings).containsExactly(EVENT);
        assertThat(overusingPods()).isEqualTo(1);
        monitor.check();
        assertThat(fixture.cluster.warnings).hasSize(2);
        report("n1");
        monitor.check();
        assertThat(overusingPods()).isZero();
        assertThat(fixture.cluster.evicted).as("the policy is to report").isEmpty();
    }

    @Test
    void memoryUpTo64MebibytesAboveTheLimitIsTolerated() {
        report("n1", overuse("a", 3064));
        monitor.check();
        assertThat(overusingPods()).isZero();
        report("n1", overuse("a", 3065));
        monitor.check();
        assertThat(overusingPods()).isEqualTo(1);
    }

    @Test
    void aPodIsEvictedOnceIfThePolicySaysSo() {
        monitor = monitor(OverusePolicy.EVICT);
        report("n1", overuse("a", 5000));
        checks(3);
        fixture.leaves(a);
        checks(20);
        assertThat(fixture.cluster.evicted).containsExactly("a");
        assertThat(fixture.cluster.warnings).containsExactly(EVENT);
        assertThat(fixture.cluster.notes)
                .containsExactly("a Evicted: evicted because container main uses 5000 MiB of " + Gpus.uuid(1, 0)
                        + ", its limit is 3000 MiB");
        assertThat(fixture.metrics
                        .counter("aliquot.evictions", "cause", "overuse", "outcome", "done")
                        .count())
                .isEqualTo(1);
    }

    @Test
    void anEvictionThatADisruptionBudgetBlocksIsRetriedAfterAPause() {
        monitor = monitor(OverusePolicy.EVICT);
        fixture.cluster.evictions.put("a", new EvictOutcome.Protected("budget web allows none"));
        report("n1", overuse("a", 5000));
        checks((int) Evictions.RETRY_AFTER.toSeconds());
        assertThat(fixture.cluster.evicted).hasSize(1);
        assertThat(fixture.cluster.warnings)
                .containsExactly(EVENT, "a GpuMemoryOveruse: cannot be evicted: budget web allows none");
        fixture.cluster.evictions.clear();
        checks(20);
        assertThat(fixture.cluster.evicted).containsExactly("a", "a");
    }

    /** What a wrong or malicious agent of node 2 may say. */
    @Test
    void anAgentCausesNothingOnPodsOfAnotherNode() {
        monitor = monitor(OverusePolicy.EVICT);
        report("n2", overuse("a", 5000), new UnchargedUse("default/a", "main", Gpus.uuid(2, 0), 5000));
        checks(5);
        assertIgnored(2);
    }

    @Test
    void aReportAboutAnUnknownPodContainerOrGpuIsIgnoredAndLoggedOnce() {
        monitor = monitor(OverusePolicy.EVICT);
        report(
                "n1",
                overuse("b", 5000),
                new UnchargedUse("other/a", "main", Gpus.uuid(1, 0), 5000),
                new UnchargedUse("default/a", "sidecar", Gpus.uuid(1, 0), 5000),
                new UnchargedUse("default/a", "main", Gpus.uuid(1, 1), 5000));
        checks(5);
        assertIgnored(4);
    }

    private void assertIgnored(int lines) {
        assertThat(fixture.cluster.evicted).isEmpty();
        assertThat(fixture.cluster.warnings).isEmpty();
        assertThat(fixture.cluster.notes).isEmpty();
        assertThat(overusingPods()).isZero();
        assertThat(log.list)
                .hasSize(lines)
                .allSatisfy(line -> assertThat(line.getFormattedMessage()).startsWith("ignored "));
    }

    /** The report may be older than the pod: a StatefulSet creates an evicted pod again under its name. */
    @Test
    void aPodThatWasBoundAMomentAgoIsNotTakenForAnEarlierOneOfItsName() {
        monitor = monitor(OverusePolicy.EVICT);
        fixture.ledger.observeEnded("uid-a");
        int second = (int) fixture.instant().getEpochSecond();
        fixture.ledger.observeBound(BoundPods.under(a, second, ""));
        report("n1", overuse("a", 5000));
        checks((int) OveruseMonitor.OLDEST_REPORT.toSeconds());
        assertThat(fixture.cluster.evicted).isEmpty();
        assertThat(fixture.cluster.warnings).isEmpty();
        checks(1);
        assertThat(fixture.cluster.evicted).containsExactly("a");
    }

    @Test
    void aLimitThatAResizeRaisedAboveTheUseIsNoOveruse() {
        fixture.holds("grown", 1, 0, 6000, 0);
        fixture.pass(OveruseMonitor.OLDEST_REPORT);
        report("n1", overuse("grown", 5000));
        checks(1);
        assertThat(fixture.cluster.warnings).isEmpty();
        assertThat(log.list).isEmpty();
    }

    @Test
    void aStandbyWritesNothingUntilItLeads() {
        monitor = monitor(OverusePolicy.EVICT);
        Cluster.LeaderStatus leads = fixture.cluster.leaderStatus;
        fixture.cluster.stopLeading();
        report("n1", overuse("a", 5000));
        checks(2);
        assertThat(fixture.cluster.warnings).isEmpty();
        assertThat(fixture.cluster.evicted).isEmpty();
        assertThat(overusingPods()).isZero();
        fixture.cluster.leaderStatus = leads;
        checks(1);
        assertThat(fixture.cluster.evicted).containsExactly("a");
        assertThat(overusingPods()).isEqualTo(1);
        fixture.cluster.stopLeading();
        checks(1);
        assertThat(overusingPods()).isZero();
    }

    private OveruseMonitor monitor(OverusePolicy policy) {
        fixture.metrics.clear();
        return new OveruseMonitor(
                reports,
                fixture.ledger,
                fixture.cluster,
                evictions,
                policy,
                fixture.metrics,
                fixture::instant,
                fixture.now::get);
    }

    private double overusingPods() {
        return fixture.metrics.get("aliquot.overuse.pods").gauge().value();
    }

    private void checks(int seconds) {
        for (int i = 0; i < seconds; i++) {
            monitor.check();
            fixture.pass(SECOND);
        }
    }

    private static UnchargedUse overuse(String pod, int usedMiB) {
        return new UnchargedUse("default/" + pod, "main", Gpus.uuid(1, 0), usedMiB);
    }

    private void report(String node, UnchargedUse... overuse) {
        reports.put(new NodeReport(new NodeId(node, "uid-" + node), List.of(), List.of(overuse)));
    }
}
