package io.aliquot.scheduler.nodeagent;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.api.usage.UsageReport.Problem;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.EvictOutcome;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.preemption.Evictions;
import io.aliquot.scheduler.settings.OverusePolicy;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Pod {@code a} holds 3000 MiB of a GPU of node 1. */
class OveruseMonitorTest {
    private static final Duration SECOND = Duration.ofSeconds(1);
    private static final String EVENT =
            "a GpuMemoryOveruse: container main uses 5000 MiB of " + Gpus.uuid(1, 0) + ", its limit is 3000 MiB";

    private static final Problem COVERING = new Problem.LimitsNotSeen("/etc/aliquot");
    private static final String COVERED =
            "a GpuLimitsCovered: container main does not see its limits: at /etc/aliquot a"
                    + " program finds another file than Aliquot's, or none";
    private static final String ENDED = "a within 5 s";

    private final ExtenderFixture fixture = new ExtenderFixture();
    private final Map<String, UsageReport> reports = new HashMap<>();
    private final Evictions evictions = new Evictions(fixture.cluster, fixture.metrics, fixture.now::get);
    private OveruseMonitor monitor = monitor(OverusePolicy.REPORT);
    private BoundPod a;

    @BeforeEach
    void start() {
        a = fixture.holds("a", 1, 0, 3000, 0);
    }

    @Test
    void thePodGetsOneEventWhateverItsFiguresAndIsCountedWhileTheAgentReportsIt() {
        for (int second = 0; second < 600; second++) {
            report("n1", overuse("a", 5000 + second));
            monitor.check();
            fixture.pass(SECOND);
        }
        assertThat(fixture.cluster.warnings).containsExactly(EVENT);
        assertThat(overusingPods()).isEqualTo(1);
        report("n1");
        monitor.check();
        assertThat(overusingPods()).isZero();
        assertThat(fixture.cluster.ended).as("the policy is to report").isEmpty();
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
    void aPodIsEndedOnceIfThePolicySaysSo() {
        monitor = monitor(OverusePolicy.EVICT);
        report("n1", overuse("a", 5000));
        checks(3);
        fixture.leaves(a);
        checks(20);
        assertThat(fixture.cluster.ended).containsExactly(ENDED);
        assertThat(fixture.cluster.warnings).containsExactly(EVENT);
        assertThat(fixture.cluster.notes)
                .containsExactly("a Evicted: ended because container main uses 5000 MiB of " + Gpus.uuid(1, 0)
                        + ", its limit is 3000 MiB");
        assertThat(fixture.metrics
                        .counter("aliquot.evictions", "cause", "overuse", "outcome", "done")
                        .count())
                .isEqualTo(1);
    }

    /** Its program needs time to free what it may no longer use. */
    @Test
    void aPodThatAResizeMadeSmallerIsEndedAfterAMinute() {
        monitor = monitor(OverusePolicy.EVICT);
        fixture.ledger.observeBound(ExtenderFixture.bound("a", 1, 9, 1000));
        report("n1", overuse("a", 2000));
        checks((int) OveruseMonitor.AFTER_RESIZE.toSeconds());
        assertThat(fixture.cluster.ended).isEmpty();
        assertThat(overusingPods()).isEqualTo(1);
        checks(1);
        assertThat(fixture.cluster.ended).containsExactly(ENDED);
    }

    @Test
    void anEndThatFailsIsRetriedAfterAPause() {
        monitor = monitor(OverusePolicy.EVICT);
        fixture.cluster.evictions.put("a", new EvictOutcome.Failed("no answer"));
        report("n1", overuse("a", 5000));
        checks((int) Evictions.RETRY_AFTER.toSeconds());
        assertThat(fixture.cluster.ended).hasSize(1);
        assertThat(fixture.cluster.warnings).containsExactly(EVENT, "a GpuMemoryOveruse: cannot be ended: no answer");
        fixture.cluster.evictions.clear();
        checks(20);
        assertThat(fixture.cluster.ended).containsExactly(ENDED, ENDED);
    }

    /** What a wrong or malicious agent of node 2 may say. */
    @Test
    void anAgentCausesNothingOnPodsOfAnotherNode() {
        monitor = monitor(OverusePolicy.EVICT);
        report("n2", overuse("a", 5000), use("uid-a", "main", Gpus.uuid(2, 0), 5000));
        checks(5);
        assertIgnored();
    }

    @Test
    void aReportAboutAnUnknownPodIsIgnored() {
        monitor = monitor(OverusePolicy.EVICT);
        report("n1", overuse("b", 5000));
        checks(5);
        assertIgnored();
    }

    /** It is privileged, or another container has sent it the descriptors of a GPU. */
    @Test
    void noShareIsALimitOfZeroToAContainerOfAPodThatHoldsOne() {
        monitor = monitor(OverusePolicy.EVICT);
        report("n1", use("uid-a", "sidecar", Gpus.uuid(1, 0), 64));
        checks(1);
        assertIgnored();
        report("n1", use("uid-a", "sidecar", Gpus.uuid(1, 0), 65));
        checks(3);
        assertThat(fixture.cluster.warnings)
                .containsExactly("a GpuMemoryOveruse: container sidecar uses 65 MiB of " + Gpus.uuid(1, 0)
                        + " and holds no share of it");
        assertThat(fixture.cluster.ended).containsExactly(ENDED);
        assertThat(overusingPods()).isEqualTo(1);
    }

    @Test
    void aShareOfOneGpuIsNoShareOfAnother() {
        monitor = monitor(OverusePolicy.EVICT);
        report("n1", use("uid-a", "main", Gpus.uuid(1, 1), 500));
        checks(3);
        assertThat(fixture.cluster.warnings)
                .containsExactly("a GpuMemoryOveruse: container main uses 500 MiB of " + Gpus.uuid(1, 1)
                        + " and holds no share of it");
        assertThat(fixture.cluster.ended).containsExactly(ENDED);
    }

    /** What a wrong or malicious agent of node 2 may say, and a whole card, whose programs call the driver directly. */
    @Test
    void noOtherContainerIsTakenForOneWithoutItsLimits() {
        fixture.holds(
                "whole", 1, 0, HostResources.NONE, BoundPods.main(Gpus.uuid(1, 1), new GpuAmount(3000, 100, 1, true)));
        for (UsageReport report : List.of(
                found("n1", "a", "sidecar", COVERING),
                found("n1", "whole", "main", COVERING),
                found("n1", "whole", "main", new Problem.WithoutShim(Gpus.uuid(1, 1))),
                found("n1", "b", "main", COVERING),
                found("n2", "a", "main", COVERING))) {
            reports.put("n1", report);
            checks(3);
        }
        assertIgnored();
    }

    private static UsageReport found(String node, String pod, String container, Problem problem) {
        var finding = new UsageReport.Finding(new PodContainer("default", pod, "uid-" + pod, container), problem);
        return new UsageReport(
                Instant.EPOCH, node, List.of(), List.of(), List.of(), List.of(finding), Optional.empty());
    }

    /** A StatefulSet creates an evicted pod again under its name. */
    @Test
    void aPodIsNotTakenForAnEarlierOneOfItsNameAndOnlyAUidNamesAPod() {
        monitor = monitor(OverusePolicy.EVICT);
        report(
                "n1",
                use("uid-of-an-earlier-one", "main", Gpus.uuid(1, 0), 5000),
                use("", "main", Gpus.uuid(1, 0), 5000));
        checks(5);
        assertIgnored();
    }

    /** The figure is NVML's alone: what the container's region says does not lower it. */
    @Test
    void chargesDoNotCount() {
        report(
                "n1",
                BoundPods.usage(
                        new PodContainer("default", "a", "uid-a", "main"),
                        Gpus.uuid(1, 0),
                        OptionalLong.of(0),
                        OptionalLong.of(5000L << 20)));
        checks(1);
        assertThat(fixture.cluster.warnings).containsExactly(EVENT);
    }

    @Test
    void aFigureThatIsNotKnownIsNoOveruse() {
        report("n1", use("uid-a", "main", Gpus.uuid(1, 0), OptionalLong.empty()));
        checks(1);
        assertIgnored();
    }

    @Test
    void aWholeCardHasNoLimitBelowTheCard() {
        fixture.holds(
                "whole", 1, 0, HostResources.NONE, BoundPods.main(Gpus.uuid(1, 1), new GpuAmount(3000, 100, 1, true)));
        report("n1", use("uid-whole", "main", Gpus.uuid(1, 1), 5000));
        checks(1);
        assertIgnored();
    }

    @Test
    void aPodThatDoesNotSeeItsLimitsIsEndedWhateverOveruseSays() {
        reports.put("n1", found("n1", "a", "main", COVERING));
        checks(3);
        assertThat(fixture.cluster.ended).containsExactly(ENDED);
        assertThat(fixture.cluster.warnings).containsExactly(COVERED);
        assertThat(fixture.cluster.notes)
                .singleElement()
                .asString()
                .startsWith("a Evicted: ended because container main");
        assertThat(unlimitedPods("covered")).isEqualTo(1);
        assertThat(unlimitedPods("without_shim")).isZero();
        assertThat(fixture.metrics
                        .counter("aliquot.evictions", "cause", "unlimited", "outcome", "done")
                        .count())
                .isEqualTo(1);
    }

    /** Its author has deleted it, and its grace period is a year. */
    @Test
    void aPodThatIsBeingDeletedIsEndedToo() {
        fixture.leaves(a);
        reports.put("n1", found("n1", "a", "main", COVERING));
        checks(3);
        assertThat(fixture.cluster.ended).containsExactly(ENDED);
    }

    @Test
    void theChartMayHaveItReportedOnly() {
        monitor = monitor(OverusePolicy.EVICT, OverusePolicy.REPORT);
        reports.put("n1", found("n1", "a", "main", COVERING));
        checks(3);
        assertThat(fixture.cluster.ended).isEmpty();
        assertThat(fixture.cluster.warnings).containsExactly(COVERED);
    }

    /** As of an image with musl: the pod goes on only if the chart says so, and is told the same. */
    @Test
    void aPodWithAProgramWithoutTheShimIsEndedOrReportedByTheSameValue() {
        String sentence = "container main runs a program on " + Gpus.uuid(1, 0) + " that cannot be limited, because";
        reports.put("n1", found("n1", "a", "main", new Problem.WithoutShim(Gpus.uuid(1, 0))));
        checks(3);
        assertThat(fixture.cluster.ended).containsExactly(ENDED);
        assertThat(fixture.cluster.notes)
                .singleElement()
                .asString()
                .startsWith("a Evicted: ended because " + sentence)
                .contains("use an image with glibc (Debian, Ubuntu, UBI; not Alpine, not Nix) or request a whole GPU");

        fixture.cluster.ended.clear();
        monitor = monitor(OverusePolicy.EVICT, OverusePolicy.REPORT);
        checks(3);
        assertThat(fixture.cluster.ended).isEmpty();
        assertThat(fixture.cluster.warnings)
                .singleElement()
                .asString()
                .startsWith("a GpuProgramWithoutShim: " + sentence);
        assertThat(unlimitedPods("without_shim")).isEqualTo(1);
        assertThat(overusingPods()).isZero();
    }

    private double unlimitedPods(String reason) {
        return fixture.metrics
                .get("aliquot.unlimited.pods")
                .tag("reason", reason)
                .gauge()
                .value();
    }

    private void assertIgnored() {
        assertThat(fixture.cluster.ended).isEmpty();
        assertThat(fixture.cluster.warnings).isEmpty();
        assertThat(fixture.cluster.notes).isEmpty();
        assertThat(overusingPods()).isZero();
    }

    @Test
    void aLimitThatAResizeRaisedAboveTheUseIsNoOveruse() {
        fixture.holds("grown", 1, 0, 6000, 0);
        report("n1", overuse("grown", 5000));
        checks(1);
        assertThat(fixture.cluster.warnings).isEmpty();
    }

    @Test
    void aStandbyWritesNothingUntilItLeads() {
        monitor = monitor(OverusePolicy.EVICT);
        Cluster.LeaderStatus leads = fixture.cluster.leaderStatus;
        fixture.cluster.stopLeading();
        report("n1", overuse("a", 5000));
        checks(2);
        assertThat(fixture.cluster.warnings).isEmpty();
        assertThat(fixture.cluster.ended).isEmpty();
        assertThat(overusingPods()).isZero();
        fixture.cluster.leaderStatus = leads;
        checks(1);
        assertThat(fixture.cluster.ended).containsExactly(ENDED);
        assertThat(overusingPods()).isEqualTo(1);
        fixture.cluster.stopLeading();
        checks(1);
        assertThat(overusingPods()).isZero();
    }

    private OveruseMonitor monitor(OverusePolicy policy) {
        return monitor(policy, OverusePolicy.EVICT);
    }

    private OveruseMonitor monitor(OverusePolicy policy, OverusePolicy unlimited) {
        fixture.metrics.clear();
        return new OveruseMonitor(
                () -> List.copyOf(reports.values()),
                fixture.ledger,
                fixture.cluster,
                evictions,
                policy,
                unlimited,
                fixture.metrics,
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

    private static UsageReport.OfContainer overuse(String pod, int usedMiB) {
        return use("uid-" + pod, "main", Gpus.uuid(1, 0), usedMiB);
    }

    private static UsageReport.OfContainer use(String uid, String container, String gpu, int usedMiB) {
        return use(uid, container, gpu, OptionalLong.of((long) usedMiB << 20));
    }

    private static UsageReport.OfContainer use(String uid, String container, String gpu, OptionalLong bytes) {
        return BoundPods.usage(new PodContainer("default", "a", uid, container), gpu, bytes, bytes);
    }

    private void report(String node, UsageReport.OfContainer... uses) {
        reports.put(node, new UsageReport(Instant.EPOCH, node, List.of(uses), List.of(), List.of()));
    }
}
