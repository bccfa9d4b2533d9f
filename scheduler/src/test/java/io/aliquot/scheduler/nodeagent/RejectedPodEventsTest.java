package io.aliquot.scheduler.nodeagent;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.NodeId;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.ledger.PodId;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class RejectedPodEventsTest {
    private static final NodeId N1 = new NodeId("n1", "uid-n1");

    private final ExtenderFixture fixture = new ExtenderFixture();
    private final NodeReports reports = new NodeReports();
    private RejectedPodEvents events = replica();

    @BeforeEach
    void start() {
        reports.put(new NodeReport(N1, List.of(), "", false));
        fixture.pass(RejectedPodEvents.PERIOD);
    }

    private RejectedPodEvents replica() {
        return new RejectedPodEvents(reports, fixture.cluster, fixture::instant, fixture.now::get);
    }

    @Test
    void oneEventNamesThePodsThatTheKubeletRejectedOneAfterTheOther() {
        rejected("b");
        fixture.pass(Duration.ofSeconds(3));
        rejected("a");
        run(Duration.ofSeconds(30));
        assertThat(fixture.cluster.warnings)
                .containsExactly(
                        "n1 GpuPodsRejected: the kubelet rejected 2 pods, whose vGPUs are free again: default/a,"
                                + " default/b. Controllers create other pods; recreate one that has no controller");
    }

    @Test
    void aLaterRebootIsAnotherEventAlsoAboutPodsOfTheSameNames() {
        rejected("a");
        run(Duration.ofSeconds(30));
        events.rejected("n1", new PodId("default", "a", "uid-another"), fixture.instant());
        run(Duration.ofSeconds(30));
        assertThat(fixture.cluster.warnings).hasSize(2);
    }

    @Test
    void aTextThatIsTooLongForAnEventCountsTheOtherPods() {
        for (int i = 0; i < 110; i++) {
            rejected("pod-of-some-deployment-" + (1000 + i));
        }
        run(Duration.ofSeconds(30));
        assertThat(fixture.cluster.warnings)
                .singleElement()
                .asString()
                .hasSizeLessThan(1024)
                .contains("rejected 110 pods", "default/pod-of-some-deployment-1000, ", " and 91 more");
    }

    @Test
    void theNextLeaderNamesWhatThePreviousOneCouldNotAndRepeatsNothing() {
        Cluster.LeaderStatus leads = fixture.cluster.leaderStatus;
        Instant at = fixture.instant();
        rejected("a");
        fixture.cluster.stopLeading();
        run(Duration.ofSeconds(20));
        assertThat(fixture.cluster.warnings).as("a standby writes none").isEmpty();

        fixture.cluster.leaderStatus = leads;
        run(Duration.ofSeconds(1));
        assertThat(fixture.cluster.warnings).hasSize(1);

        events = replica();
        events.rejected("n1", pod("a"), at);
        run(Duration.ofSeconds(30));
        assertThat(fixture.cluster.warnings).as("the same after a restart").hasSize(1);
    }

    @Test
    void aRejectionOfLongAgoIsNotNamedAgain() {
        Instant at = fixture.instant();
        fixture.pass(RejectedPodEvents.RECENT);
        events.rejected("n1", pod("a"), at);
        run(Duration.ofSeconds(30));
        assertThat(fixture.cluster.warnings).isEmpty();
    }

    private void rejected(String pod) {
        events.rejected("n1", pod(pod), fixture.instant());
    }

    private static PodId pod(String name) {
        return new PodId("default", name, "uid-" + name);
    }

    private void run(Duration time) {
        for (long second = 0; second < time.toSeconds(); second++) {
            fixture.pass(Duration.ofSeconds(1));
            events.report();
        }
    }
}
