package io.aliquot.scheduler.pending;

import static io.aliquot.scheduler.extender.ExtenderFixture.id;
import static io.aliquot.scheduler.extender.ExtenderFixture.mebibytes;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Gpu;
import io.aliquot.api.Placement;
import io.aliquot.api.SharingMode;
import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.pending.PendingPods.Waiting;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeGpus;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class WakerTest {
    private final ExtenderFixture world = new ExtenderFixture();
    private final Waker waker =
            new Waker(world.ledger, world.events, world.pending, List::of, world.cluster, world.now::get);

    @BeforeEach
    void noRoom() {
        world.takenElsewhere("x", 1, 0, 79_000);
        world.takenElsewhere("y", 1, 1, 79_000);
        world.takenElsewhere("z", 2, 0, 79_000);
        world.takenElsewhere("v", 2, 1, 79_000);
        world.events.takeFreed();
    }

    @Test
    void freeCapacityThatIsTooSmallWakesNoPod() {
        waits("a", 2000, "n1");
        world.ledger.observeBound(ExtenderFixture.bound("x", 1, 2, 78_500));
        assertThat(wokenAfterASecond()).isEmpty();
    }

    @Test
    void releasedCapacityWakesAPodAtOnce() {
        waits("a", 2000, "n1");
        world.ledger.observeEnded("uid-x");
        waker.wake();
        assertThat(world.cluster.woken).containsExactly("n1");
        assertThat(wokenAfterASecond()).as("once").containsExactly("n1");
    }

    @Test
    void aGpuThatIsHealthyAgainWakesAPod() {
        sick(true);
        waits("a", 2000, "n1");
        world.ledger.observeEnded("uid-x");
        assertThat(wokenAfterASecond()).isEmpty();
        sick(false);
        assertThat(wokenAfterASecond()).containsExactly("n1");
    }

    @Test
    void shrinkingAnAllocationWakesAPod() {
        waits("a", 2000, "n1");
        world.ledger.observeBound(ExtenderFixture.bound("x", 1, 2, 70_000));
        assertThat(wokenAfterASecond()).containsExactly("n1");
    }

    @Test
    void uncordoningAGpuWakesAPod() {
        cordon(Gpus.uuid(1, 0));
        waits("a", 2000, "n1");
        world.ledger.observeEnded("uid-x");
        assertThat(wokenAfterASecond()).isEmpty();
        cordon();
        assertThat(wokenAfterASecond()).containsExactly("n1");
    }

    private void cordon(String... uuids) {
        var gpus = Gpus.inventory(10, Gpus.gpu(1, 0, ExtenderFixture.MEMORY), Gpus.gpu(1, 1, ExtenderFixture.MEMORY));
        world.ledger.putNode(
                "n1",
                new NodeFacts.Sharing(
                        new NodeGpus(gpus, SharingMode.CORE_MEMORY, Set.of(uuids)),
                        Placement.BINPACK,
                        new HostResources(1000, 1000)));
    }

    private void sick(boolean sick) {
        ExtenderFixture.node(
                world.ledger, 1, Gpus.gpu(1, 0, ExtenderFixture.MEMORY, !sick), Gpus.gpu(1, 1, ExtenderFixture.MEMORY));
    }

    @Test
    void aNewNodeAndAnAgentThatIsReadyAgainWakeAPod() {
        waits("a", 2000, "n1", "n3");
        Gpu gpu = Gpus.gpu(3, 0, ExtenderFixture.MEMORY);
        world.ledger.setAgentReady("n3", false);
        ExtenderFixture.node(world.ledger, 3, gpu);
        assertThat(wokenAfterASecond()).isEmpty();
        world.ledger.setAgentReady("n3", true);
        assertThat(wokenAfterASecond()).containsExactly("n3");
        world.ledger.putNode("n3", new NodeFacts.Unavailable("not labelled gpu=on"));
        assertThat(wokenAfterASecond()).containsExactly("n3");
        ExtenderFixture.node(world.ledger, 3, gpu);
        assertThat(wokenAfterASecond()).containsExactly("n3", "n3");
    }

    @Test
    void anExpiredReservationWakesAPod() {
        world.ledger.observeEnded("uid-x");
        world.ledger.reserve(id("b"), "n1", Gpus.request("APP:main: gpumem=80000"));
        waits("a", 2000, "n1");
        world.events.takeFreed();
        world.pass(Ledger.RESERVATION_TIME.plusSeconds(1));
        world.ledger.expire();
        assertThat(wokenAfterASecond()).containsExactly("n1");
    }

    @Test
    void freeCapacityOnANodeThatThePodExcludesWakesNoPod() {
        waits("a", 2000, "n1");
        world.ledger.observeEnded("uid-z");
        assertThat(wokenAfterASecond()).isEmpty();
    }

    @Test
    void aPodWhoseBindFailedIsWokenForAnyNode() {
        world.pending.waits(id("a"), new Cluster.PodState.Unbound(1, Gpus.request("APP:main: gpumem=2000")));
        world.ledger.observeEnded("uid-z");
        assertThat(wokenAfterASecond()).containsExactly("n2");
    }

    @Test
    void aDeletedPodIsNotWoken() {
        waits("a", 2000, "n1");
        world.pending.forget("uid-a");
        world.ledger.observeEnded("uid-x");
        assertThat(wokenAfterASecond()).isEmpty();
    }

    @Test
    void atMostOneWakingWriteIsSentASecond() {
        waits("a", 2000, "n1", "n2");
        for (int tenth = 0; tenth < 50; tenth++) {
            world.takenElsewhere("x", 1, 0, 79_000);
            world.ledger.observeEnded("uid-x");
            waker.wake();
            world.pass(Duration.ofMillis(100));
        }
        assertThat(world.cluster.woken).hasSize(5);
    }

    @Test
    void concurrentWakingsSendOneWriteASecond() {
        waits("a", 2000, "n1");
        Waiting a = world.pending.waiting("uid-a").orElseThrow();
        world.ledger.observeEnded("uid-x");
        world.cluster.meanwhile = () -> waker.wake("n2", a);
        waker.wake();
        assertThat(world.cluster.woken).containsExactly("n2");
        world.cluster.meanwhile = () -> {};
        assertThat(wokenAfterASecond()).as("freed capacity is not forgotten").containsExactly("n2", "n1");
    }

    @Test
    void aPodIsWokenOnceUntilKubeSchedulerRetriesItOrAMinutePasses() {
        waits("a", 2000, "n1");
        for (int second = 0; second < 100; second++) {
            world.pass(Waker.MIN_INTERVAL);
            waker.wake("n1", world.pending.waiting("uid-a").orElseThrow());
        }
        assertThat(world.cluster.woken).hasSize(2);
        waits("a", 2000, "n1");
        world.pass(Waker.MIN_INTERVAL);
        waker.wake("n1", world.pending.waiting("uid-a").orElseThrow());
        assertThat(world.cluster.woken).hasSize(3);
    }

    @Test
    void aFailedWriteIsRetried() {
        waits("a", 2000, "n1");
        world.cluster.wakes = false;
        world.ledger.observeEnded("uid-x");
        waker.wake();
        assertThat(wokenAfterASecond()).containsExactly("n1", "n1");
        world.cluster.wakes = true;
        wokenAfterASecond();
        assertThat(wokenAfterASecond()).containsExactly("n1", "n1", "n1");
    }

    @Test
    void aFailedWriteForAGivenPodIsRetried() {
        waits("a", 2000, "n1");
        Waiting a = world.pending.waiting("uid-a").orElseThrow();
        world.cluster.wakes = false;
        for (int second = 0; second < 3; second++) {
            world.pass(Waker.MIN_INTERVAL);
            waker.wake("n1", a);
        }
        assertThat(world.cluster.woken).hasSize(3);
    }

    @Test
    void aNewLeaderWakesPodsForCapacityFreedBeforeItLed() {
        waits("a", 2000, "n1");
        Cluster.LeaderStatus leads = world.cluster.leaderStatus;
        world.cluster.leaderStatus = new Cluster.LeaderStatus.Waits("another one holds the Lease");
        world.ledger.observeEnded("uid-x");
        assertThat(wokenAfterASecond()).isEmpty();
        world.cluster.leaderStatus = leads;
        assertThat(wokenAfterASecond()).containsExactly("n1");
    }

    @Test
    void pendingPodsAreGroupedByKind() {
        for (int i = 0; i < 5000; i++) {
            waits("a" + i, 2000 + i % 3, "n1", "n2");
        }
        assertThat(world.pending.waiting()).hasSize(5000);
        assertThat(world.pending.kinds()).hasSize(3);
    }

    @Test
    void manyKindsOfPodsAreEvaluatedInTurn() {
        for (int i = 0; i < 15_000; i++) {
            waits("a" + i, 60_000 + i, "n2");
        }
        world.ledger.observeEnded("uid-x");
        world.ledger.observeEnded("uid-z");
        for (int second = 0; second < 3; second++) {
            wokenAfterASecond();
        }
        assertThat(world.cluster.woken).containsExactly("n2");
    }

    private void waits(String name, int mebibytes, String... nodes) {
        assertThat(world.filter(name, mebibytes(mebibytes), 0, "", nodes)).isEmpty();
    }

    private List<String> wokenAfterASecond() {
        world.pass(Waker.MIN_INTERVAL);
        waker.wake();
        return world.cluster.woken;
    }
}
