package io.aliquot.scheduler.nodeagent;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth.Recovery;
import io.aliquot.api.nodes.GpuHealth.Unhealthy;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.NodeId;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.placement.Gpus;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.OptionalInt;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class GpuHealthEventsTest {
    private static final NodeId N1 = new NodeId("n1", "uid-n1");
    private static final Instant SINCE = Instant.parse("1970-01-01T00:00:01Z");

    private final ExtenderFixture fixture = new ExtenderFixture();
    private final NodeReports reports = new NodeReports();
    private final GpuHealthEvents events =
            new GpuHealthEvents(reports, fixture.ledger, fixture.cluster, fixture::instant, fixture.now::get);

    @Test
    void theNodeAndEachPodWithAShareGetAnEventWhenAGpuBecomesUnhealthy() {
        fixture.holds("a", 1, 0, 1000, 0);
        fixture.holds("b", 1, 0, 1000, 0);
        fixture.holds("other-gpu", 1, 1, 1000, 0);
        fixture.holds("other-node", 2, 0, 1000, 0);
        run(healthy(0), healthy(1));
        run(unhealthy(0, SINCE, Recovery.RESET), healthy(1));
        String gpu = Gpus.uuid(1, 0) + " (NVIDIA Test)";
        String share = " GpuUnhealthy: the pod holds a share of " + gpu + " on node n1, which is unhealthy since "
                + "1970-01-01T00:00:01Z: XID 48: double bit error. The share stays; to move to another GPU, delete the pod";
        assertThat(fixture.cluster.warnings)
                .containsExactlyInAnyOrder(
                        "n1 GpuUnhealthy: " + gpu
                                + " is unhealthy since 1970-01-01T00:00:01Z: XID 48: double bit error. "
                                + "It takes no new vGPUs until the GPU is reset or the driver is reloaded; end its pods before",
                        "a" + share,
                        "b" + share);
        assertThat(fixture.cluster.notes).isEmpty();
    }

    @Test
    void eachRecoveryHasItsAdvice() {
        run(healthy(0), healthy(1));
        run(unhealthy(0, SINCE, Recovery.PROBE), unhealthy(1, SINCE, Recovery.REBOOT));
        assertThat(fixture.cluster.warnings)
                .satisfiesExactly(
                        probe -> assertThat(probe).endsWith(". It takes no new vGPUs until the agent's probe succeeds"),
                        reboot -> assertThat(reboot).endsWith(" until the node reboots"));
    }

    @Test
    void theNodeGetsAnEventWhenTheGpuIsHealthyAgain() {
        run(healthy(0));
        run(unhealthy(0, SINCE));
        fixture.pass(GpuHealthEvents.MIN_INTERVAL);
        run(healthy(0));
        run(healthy(0));
        assertThat(fixture.cluster.notes)
                .containsExactly(
                        "n1 GpuHealthy: " + Gpus.uuid(1, 0) + " (NVIDIA Test) is healthy again and takes new vGPUs");
    }

    @Test
    void anUnchangedStateIsWrittenOnceAlsoIfItsReasonChanges() {
        run(healthy(0));
        for (int minute = 0; minute < 20; minute++) {
            String reason = "NVML has not answered for " + minute + " minutes";
            run(Gpus.gpu(1, 0, 1000).withHealth(new Unhealthy(reason, SINCE)));
            fixture.pass(GpuHealthEvents.MIN_INTERVAL);
        }
        assertThat(fixture.cluster.warnings).hasSize(1);
    }

    @Test
    void aGpuThatKeepsChangingGetsOneEventAMinuteAboutItsLatestState() {
        run(healthy(0));
        for (int second = 0; second < 60; second++) {
            run(second % 2 == 0 ? unhealthy(0, fixture.instant()) : healthy(0));
            fixture.pass(Duration.ofSeconds(1));
        }
        assertThat(fixture.cluster.warnings).hasSize(1);
        assertThat(fixture.cluster.notes).isEmpty();
        run(healthy(0));
        assertThat(fixture.cluster.notes).hasSize(1);
    }

    @Test
    void aNewLeaderWritesEventsOnlyAboutGpusThatBecameUnhealthyRecently() {
        Instant start = fixture.instant();
        Cluster.LeaderStatus leads = fixture.cluster.leaderStatus;
        fixture.cluster.stopLeading();
        run(healthy(0), healthy(1));
        fixture.pass(Duration.ofMinutes(15));
        run(unhealthy(0, start.plus(Duration.ofMinutes(4))), unhealthy(1, start.plus(Duration.ofMinutes(6))));
        assertThat(fixture.cluster.warnings).as("a standby writes none").isEmpty();
        fixture.cluster.leaderStatus = leads;
        events.report();
        assertThat(fixture.cluster.warnings)
                .hasSize(1)
                .first()
                .asString()
                .startsWith("n1 GpuUnhealthy: " + Gpus.uuid(1, 1));
        run(healthy(0), healthy(1));
        assertThat(fixture.cluster.notes)
                .as("the first has had no event within a minute")
                .hasSize(1);
        fixture.pass(GpuHealthEvents.MIN_INTERVAL);
        run(healthy(0), healthy(1));
        assertThat(fixture.cluster.notes).hasSize(2);
    }

    /** Its time is older than what the leader has seen itself. */
    @Test
    void aGpuOfUnknownSinceGetsAnEventWhenTheLeaderSawItHealthyBefore() {
        run(unhealthy(0, Instant.EPOCH.minusSeconds(3600)), healthy(1));
        run(unhealthy(0, Instant.EPOCH.minusSeconds(3600)), unhealthy(1, Instant.EPOCH.minusSeconds(3600)));
        assertThat(fixture.cluster.warnings)
                .hasSize(1)
                .first()
                .asString()
                .startsWith("n1 GpuUnhealthy: " + Gpus.uuid(1, 1));
    }

    @Test
    void aNodeThatIsCreatedAgainIsAnotherNode() {
        run(healthy(0));
        reports.remove("n1");
        events.report();
        reports.put(new NodeReport(
                new NodeId("n1", "uid-new"), List.of(unhealthy(0, Instant.EPOCH.minusSeconds(3600))), "", false));
        events.report();
        assertThat(fixture.cluster.warnings).isEmpty();
    }

    @Test
    void aRunWritesABoundedNumberOfEventsAndTheNextRunsGoOn() {
        Gpu[] gpus = IntStream.range(0, 120).mapToObj(this::healthy).toArray(Gpu[]::new);
        Gpu[] lost = IntStream.range(0, 120).mapToObj(i -> unhealthy(i, SINCE)).toArray(Gpu[]::new);
        run(gpus);
        run(lost);
        assertThat(fixture.cluster.warnings).hasSize(GpuHealthEvents.MAX_EVENTS_PER_RUN);
        run(lost);
        run(lost);
        run(lost);
        assertThat(fixture.cluster.warnings).hasSize(120).doesNotHaveDuplicates();
    }

    private void run(Gpu... gpus) {
        reports.put(new NodeReport(N1, List.of(gpus), "", false));
        events.report();
    }

    private Gpu healthy(int index) {
        return Gpus.gpu(1, index, ExtenderFixture.MEMORY);
    }

    private Gpu unhealthy(int index, Instant since) {
        return unhealthy(index, since, Recovery.PROBE);
    }

    private Gpu unhealthy(int index, Instant since, Recovery recovery) {
        return healthy(index)
                .withHealth(new Unhealthy("XID 48: double bit error", since, OptionalInt.of(48), recovery));
    }
}
