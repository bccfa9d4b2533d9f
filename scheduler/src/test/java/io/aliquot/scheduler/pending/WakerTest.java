package io.aliquot.scheduler.pending;

import static io.aliquot.scheduler.extender.ExtenderFixture.id;
import static io.aliquot.scheduler.extender.ExtenderFixture.mebibytes;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.pods.Placement;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.pending.PendingPods.PendingPod;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeGpus;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class WakerTest {
    private final ExtenderFixture fixture = new ExtenderFixture();
    private final Waker waker =
            new Waker(fixture.ledger, fixture.events, fixture.pending, List::of, fixture.cluster, fixture.now::get);

    @BeforeEach
    void noRoom() {
        fixture.takenElsewhere("x", 1, 0, 79_000);
        fixture.takenElsewhere("y", 1, 1, 79_000);
        fixture.takenElsewhere("z", 2, 0, 79_000);
        fixture.takenElsewhere("v", 2, 1, 79_000);
        fixture.events.takeFreed();
    }

    @Test
    void freeCapacityThatIsTooSmallWakesNoPod() {
        waits("a", 2000, "n1");
        fixture.ledger.observeBound(ExtenderFixture.bound("x", 1, 2, 78_500));
        assertThat(wokenAfterASecond()).isEmpty();
    }

    @Test
    void releasedCapacityWakesAPodAtOnce() {
        waits("a", 2000, "n1");
        fixture.ledger.observeEnded("uid-x");
        waker.wake();
        assertThat(fixture.cluster.woken).containsExactly("n1");
        assertThat(wokenAfterASecond()).as("once").containsExactly("n1");
    }

    @Test
    void aGpuThatIsHealthyAgainWakesAPod() {
        sick(true);
        waits("a", 2000, "n1");
        fixture.ledger.observeEnded("uid-x");
        assertThat(wokenAfterASecond()).isEmpty();
        sick(false);
        assertThat(wokenAfterASecond()).containsExactly("n1");
    }

    @Test
    void shrinkingAnAllocationWakesAPod() {
        waits("a", 2000, "n1");
        fixture.ledger.observeBound(ExtenderFixture.bound("x", 1, 2, 70_000));
        fixture.pass(Duration.ofSeconds(22));
        fixture.ledger.observe(
                new UsageReport(Instant.EPOCH, "n1", List.of(), List.of(), List.of()), fixture.now.get());
        assertThat(wokenAfterASecond()).containsExactly("n1");
    }

    @Test
    void uncordoningAGpuWakesAPod() {
        cordon(Gpus.uuid(1, 0));
        waits("a", 2000, "n1");
        fixture.ledger.observeEnded("uid-x");
        assertThat(wokenAfterASecond()).isEmpty();
        cordon();
        assertThat(wokenAfterASecond()).containsExactly("n1");
    }

    private void cordon(String... uuids) {
        var gpus = Gpus.inventory(10, Gpus.gpu(1, 0, ExtenderFixture.MEMORY), Gpus.gpu(1, 1, ExtenderFixture.MEMORY));
        fixture.ledger.putNode(
                "n1",
                new NodeFacts.Sharing(
                        new NodeGpus(gpus, SharingMode.CORE_MEMORY, Set.of(uuids)),
                        Placement.BINPACK,
                        new HostResources(1000, 1000)));
    }

    private void sick(boolean sick) {
        ExtenderFixture.node(
                fixture.ledger,
                1,
                Gpus.gpu(1, 0, ExtenderFixture.MEMORY, !sick),
                Gpus.gpu(1, 1, ExtenderFixture.MEMORY));
    }

    @Test
    void aNewNodeAndAnAgentThatIsReadyAgainWakeAPod() {
        waits("a", 2000, "n1", "n3");
        Gpu gpu = Gpus.gpu(3, 0, ExtenderFixture.MEMORY);
        fixture.ledger.setAgentReady("n3", false);
        ExtenderFixture.node(fixture.ledger, 3, gpu);
        assertThat(wokenAfterASecond()).isEmpty();
        fixture.ledger.setAgentReady("n3", true);
        assertThat(wokenAfterASecond()).containsExactly("n3");
        fixture.ledger.putNode("n3", new NodeFacts.Unavailable("not labelled gpu=on"));
        assertThat(wokenAfterASecond()).containsExactly("n3");
        ExtenderFixture.node(fixture.ledger, 3, gpu);
        assertThat(wokenAfterASecond()).containsExactly("n3", "n3");
    }

    @Test
    void anExpiredReservationWakesAPod() {
        fixture.ledger.observeEnded("uid-x");
        fixture.ledger.reserve(id("b"), "n1", Gpus.request("APP:main: gpumem=80000"));
        waits("a", 2000, "n1");
        fixture.events.takeFreed();
        fixture.pass(Ledger.RESERVATION_TIME.plusSeconds(1));
        fixture.ledger.expire();
        assertThat(wokenAfterASecond()).containsExactly("n1");
    }

    @Test
    void freeCapacityOnANodeThatThePodExcludesWakesNoPod() {
        waits("a", 2000, "n1");
        fixture.ledger.observeEnded("uid-z");
        assertThat(wokenAfterASecond()).isEmpty();
    }

    @Test
    void aPodWhoseBindFailedIsWokenForAnyNode() {
        fixture.pending.doesNotFit(id("a"), new Cluster.PodState.Unbound(1, Gpus.request("APP:main: gpumem=2000")));
        fixture.ledger.observeEnded("uid-z");
        assertThat(wokenAfterASecond()).containsExactly("n2");
    }

    @Test
    void aDeletedPodIsNotWoken() {
        waits("a", 2000, "n1");
        fixture.pending.forget("uid-a");
        fixture.ledger.observeEnded("uid-x");
        assertThat(wokenAfterASecond()).isEmpty();
    }

    @Test
    void atMostOneWakingWriteIsSentASecond() {
        waits("a", 2000, "n1", "n2");
        for (int tenth = 0; tenth < 50; tenth++) {
            fixture.takenElsewhere("x", 1, 0, 79_000);
            fixture.ledger.observeEnded("uid-x");
            waker.wake();
            fixture.pass(Duration.ofMillis(100));
        }
        assertThat(fixture.cluster.woken).hasSize(5);
    }

    @Test
    void concurrentWakingsSendOneWriteASecond() {
        waits("a", 2000, "n1");
        PendingPod a = fixture.pending.pending("uid-a").orElseThrow();
        fixture.ledger.observeEnded("uid-x");
        fixture.cluster.meanwhile = () -> waker.wake("n2", a);
        waker.wake();
        assertThat(fixture.cluster.woken).containsExactly("n2");
        fixture.cluster.meanwhile = () -> {};
        assertThat(wokenAfterASecond()).as("freed capacity is not forgotten").containsExactly("n2", "n1");
    }

    @Test
    void aPodIsWokenOnceUntilKubeSchedulerRetriesItOrAMinutePasses() {
        waits("a", 2000, "n1");
        for (int second = 0; second < 100; second++) {
            fixture.pass(Waker.MIN_INTERVAL);
            waker.wake("n1", fixture.pending.pending("uid-a").orElseThrow());
        }
        assertThat(fixture.cluster.woken).hasSize(2);
        waits("a", 2000, "n1");
        fixture.pass(Waker.MIN_INTERVAL);
        waker.wake("n1", fixture.pending.pending("uid-a").orElseThrow());
        assertThat(fixture.cluster.woken).hasSize(3);
    }

    @Test
    void aFailedWriteIsRetried() {
        waits("a", 2000, "n1");
        fixture.cluster.wakes = false;
        fixture.ledger.observeEnded("uid-x");
        waker.wake();
        assertThat(wokenAfterASecond()).containsExactly("n1", "n1");
        fixture.cluster.wakes = true;
        wokenAfterASecond();
        assertThat(wokenAfterASecond()).containsExactly("n1", "n1", "n1");
    }

    @Test
    void aFailedWriteForAGivenPodIsRetried() {
        waits("a", 2000, "n1");
        PendingPod a = fixture.pending.pending("uid-a").orElseThrow();
        fixture.cluster.wakes = false;
        for (int second = 0; second < 3; second++) {
            fixture.pass(Waker.MIN_INTERVAL);
            waker.wake("n1", a);
        }
        assertThat(fixture.cluster.woken).hasSize(3);
    }

    @Test
    void aNewLeaderWakesPodsForCapacityFreedBeforeItLed() {
        waits("a", 2000, "n1");
        Cluster.LeaderStatus leads = fixture.cluster.leaderStatus;
        fixture.cluster.stopLeading();
        fixture.ledger.observeEnded("uid-x");
        assertThat(wokenAfterASecond()).isEmpty();
        fixture.cluster.leaderStatus = leads;
        assertThat(wokenAfterASecond()).containsExactly("n1");
    }

    @Test
    void pendingPodsAreGroupedByKind() {
        for (int i = 0; i < 5000; i++) {
            waits("a" + i, 2000 + i % 3, "n1", "n2");
        }
        assertThat(fixture.pending.pending()).hasSize(5000);
        assertThat(fixture.pending.kinds()).hasSize(3);
    }

    @Test
    void manyKindsOfPodsAreEvaluatedInTurn() {
        for (int i = 0; i < 15_000; i++) {
            waits("a" + i, 60_000 + i, "n2");
        }
        fixture.ledger.observeEnded("uid-x");
        fixture.ledger.observeEnded("uid-z");
        for (int second = 0; second < 3; second++) {
            wokenAfterASecond();
        }
        assertThat(fixture.cluster.woken).containsExactly("n2");
    }

    private void waits(String name, int mebibytes, String... nodes) {
        assertThat(fixture.filter(name, mebibytes(mebibytes), 0, "", nodes)).isEmpty();
    }

    private List<String> wokenAfterASecond() {
        fixture.pass(Waker.MIN_INTERVAL);
        waker.wake();
        return fixture.cluster.woken;
    }
}
