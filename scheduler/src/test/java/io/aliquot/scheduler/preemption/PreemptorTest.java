package io.aliquot.scheduler.preemption;

import static io.aliquot.scheduler.extender.ExtenderFixture.mebibytes;
import static io.aliquot.scheduler.extender.ExtenderFixture.share;
import static io.aliquot.scheduler.extender.ExtenderFixture.unbound;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerInvariants;
import io.aliquot.scheduler.pending.UnboundPod;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import org.junit.jupiter.api.Test;

class PreemptorTest {
    private static final int LARGE = 80_000;

    private final ExtenderFixture world = new ExtenderFixture();
    private final PreemptionFixture preemption = new PreemptionFixture(world);
    private final UnboundPod high = unbound("high", mebibytes(LARGE), 10, "PreemptLowerPriority");

    @Test
    void victimsAreChosenPerGpuAndNotByTheNodesTotals() {
        world.holds("a", 1, 0, 50_000, 1);
        world.holds("b", 1, 1, 40_000, 1);
        world.holds("c", 1, 1, 40_000, 1);
        // By the totals of the node, evicting b and c frees enough memory too.
        assertThat(victims(high, "n1", "b", "c")).containsExactly("a");
    }

    @Test
    void victimsAreAddedIfTheProposalFreesNoGpu() {
        world.holds("a", 1, 0, 80_000, 5);
        world.holds("b", 1, 1, 40_000, 1);
        world.holds("c", 1, 1, 40_000, 1);
        assertThat(victims(high, "n1", "b")).containsExactly("b", "c");
    }

    @Test
    void noPodOfEqualOrHigherPriorityIsAVictimAndANodeWithoutEnoughVictimsIsOmitted() {
        world.holds("a", 1, 0, 50_000, 10);
        world.holds("b", 1, 0, 30_000, 1);
        world.holds("c", 1, 1, 80_000, 11);
        assertThat(preemption.preemptor.preempt(high, proposal("n1", "b"))).isEmpty();
    }

    @Test
    void theAnswerHasOnlyTheCheapestNode() {
        world.holds("a", 1, 0, 80_000, 3);
        world.holds("b", 1, 1, 80_000, 3);
        world.holds("c", 2, 0, 40_000, 2);
        world.holds("d", 2, 0, 40_000, 2);
        world.holds("e", 2, 1, 80_000, 9);
        Map<String, NodeVictims> both = Map.of(
                "n1", new NodeVictims(List.of("uid-a"), 0),
                "n2", new NodeVictims(List.of("uid-c"), 0));
        assertThat(preemption.preemptor.preempt(high, both).keySet()).containsExactly("n2");
    }

    @Test
    void proposedVictimsWithoutAGpuStayVictims() {
        world.holds("a", 1, 0, 80_000, 1);
        world.holds("b", 1, 1, 80_000, 2);
        world.holds("web", 1, 0, new HostResources(900, 0));
        assertThat(victims(high, "n1", "web", "b", "unknown")).containsExactly("a", "unknown", "web");
    }

    @Test
    void aVictimProposedForItsCpuStaysAVictimEvenIfAnotherPodHasTheCheaperGpu() {
        var half = new HostResources(500, 0);
        world.holds("a", 1, 1, half, share(1, 0, 80_000));
        world.holds("b", 1, 1, new HostResources(100, 0), share(1, 1, 80_000));
        String json = ExtenderFixture.podJson("high", mebibytes(LARGE), "")
                .replace("\"spec\": {", "\"spec\": {\"priority\": 10, ")
                .replace("\"resources\": {", "\"resources\": {\"requests\": {\"cpu\": \"600m\"}, ");
        var hungry = ExtenderFixture.unbound(json);
        assertThat(victims(hungry, "n1", "a")).containsExactly("a");
        world.holds("a", 1, 1, new HostResources(300, 0), share(1, 0, 80_000));
        world.holds("b", 1, 1, new HostResources(100, 0), share(1, 1, 80_000));
        preemption.reservations.release("uid-high");
        assertThat(victims(hungry, "n1", "a")).as("the younger pod").containsExactly("b");
    }

    @Test
    void ifAGpuIsFreeAProposedVictimBlocksAnotherResourceAndStaysAVictim() {
        world.holds("port", 1, 0, 10_000, 1);
        world.holds("cheaper", 1, 1, 10_000, 0);
        world.budget("guarded", 0, "port");
        var proposal = Map.of("n1", new NodeVictims(List.of("uid-port"), 1));
        assertThat(preemption.preemptor.preempt(unbound("high", mebibytes(40_000), 10, ""), proposal))
                .as("for example, a host port")
                .isEqualTo(proposal);
    }

    @Test
    void aVictimForAnotherResourceStaysAndTheCheapestVictimFreesTheGpu() {
        world.holds("port", 1, 0, 10_000, 5);
        world.holds("important", 1, 0, 70_000, 20);
        world.holds("old", 1, 1, 40_000, 3);
        world.holds("young", 1, 1, 40_000, 3);
        assertThat(victims(unbound("high", mebibytes(40_000), 10, ""), "n1", "port", "old"))
                .containsExactly("port", "young");
    }

    @Test
    void aVictimForAGpuAndAnotherResourceIsEvictedAtTheNextTry() {
        world.holds("port", 1, 0, 30_000, 2);
        world.holds("cheaper", 1, 1, 80_000, 1);
        var wide = unbound("wide", mebibytes(60_000), 10, "");
        assertThat(victims(wide, "n1", "port")).containsExactly("cheaper");
        world.ledger.observeEnded("uid-cheaper");
        preemption.reservations.refresh();
        assertThat(victims(wide, "n1", "port")).containsExactly("port");
    }

    @Test
    void exceededBudgetsAreCountedAndAvoidedAmongVictimsOfEqualPriority() {
        world.holds("a", 1, 0, 80_000, 1);
        world.holds("b", 1, 1, 80_000, 1);
        world.budget("guarded", 0, "b");
        assertThat(victims(high, "n1", "b")).containsExactly("a");
        world.budget("guarded", 0, "a");
        preemption.reservations.release("uid-high");
        assertThat(preemption.preemptor.preempt(high, proposal("n1", "b")).get("n1"))
                .isEqualTo(new NodeVictims(List.of("uid-b"), 1));
    }

    @Test
    void ifTerminatingPodsFreeEnoughNoOtherPodIsAVictim() {
        BoundPod a = world.holds("a", 1, 0, 80_000, 1);
        world.holds("b", 1, 1, 80_000, 1);
        world.leaves(a);
        assertThat(victims(high, "n1", "b")).containsExactly("a");
    }

    @Test
    void aPodTerminatingPastItsGracePeriodIsNotWaitedFor() {
        BoundPod a = world.holds("a", 1, 0, 80_000, 1);
        world.holds("b", 1, 1, 80_000, 1);
        world.leaves(a);
        world.pass(Duration.ofMinutes(2));
        assertThat(victims(high, "n1", "b")).containsExactly("b");
    }

    @Test
    void theReservationLastsWhileThePreemptorIsPending() {
        world.holds("a", 1, 0, 80_000, 1);
        world.holds("b", 1, 1, 80_000, 20);
        world.filter("high", mebibytes(LARGE), 10, "PreemptLowerPriority", "n1");
        assertThat(victims(high, "n1", "a")).containsExactly("a");
        world.ledger.observeEnded("uid-a");
        var ask = Gpus.ask("APP:main: gpumem=1000");
        assertThat(world.ledger.feasibility("n1", "uid-other", ask)).isInstanceOf(Feasibility.Refused.class);
        assertThat(world.ledger.feasibility("n1", "uid-high", high.request())).isInstanceOf(Feasibility.Fits.class);
        for (int i = 0; i < 10; i++) {
            world.pass(Ledger.PREEMPTOR_RESERVATION_TIME.dividedBy(2));
            preemption.reservations.refresh();
            world.ledger.expire();
        }
        assertThat(world.ledger.feasibility("n1", "uid-other", ask)).isInstanceOf(Feasibility.Refused.class);
        world.pending.forget("uid-high");
        preemption.reservations.refresh();
        assertThat(world.ledger.feasibility("n1", "uid-other", ask)).isInstanceOf(Feasibility.Fits.class);
    }

    @Test
    void capacityIsReservedForAPreemptorThatFilterHasNotSeen() {
        var other = Gpus.ask("APP:main: gpumem=1000");
        world.holds("a", 1, 0, 80_000, 1);
        world.holds("b", 1, 1, 80_000, 20);
        assertThat(victims(high, "n1", "a")).containsExactly("a");
        world.ledger.observeEnded("uid-a");
        preemption.reservations.refresh();
        assertThat(world.ledger.feasibility("n1", "uid-other", other)).isInstanceOf(Feasibility.Refused.class);
        world.pending.forget("uid-high");
        preemption.reservations.refresh();
        assertThat(world.ledger.feasibility("n1", "uid-other", other)).isInstanceOf(Feasibility.Fits.class);
    }

    @Test
    void noCapacityIsReservedForADeletedPreemptor() {
        world.holds("a", 1, 0, 80_000, 1);
        world.holds("b", 1, 1, 80_000, 20);
        world.cluster.version = OptionalLong.empty();
        victims(high, "n1", "a");
        preemption.reservations.refresh();
        assertThat(preemption.reservations.all()).isEmpty();
    }

    @Test
    void theReservationIsReleasedIfTheVictimIsNotEvicted() {
        world.holds("a", 1, 0, 80_000, 1);
        world.holds("b", 1, 1, 80_000, 20);
        world.filter("high", mebibytes(LARGE), 10, "PreemptLowerPriority", "n1");
        victims(high, "n1", "a");
        world.pass(Duration.ofMinutes(1)); // pod a was not evicted
        preemption.reservations.refresh();
        assertThat(preemption.reservations.all()).isEmpty();
        assertThat(LedgerInvariants.unconfirmed(world.ledger)).isEmpty();
    }

    @Test
    void aPodThatMayNotPreemptOrAReplicaThatDoesNotLeadEvictsNoPod() {
        world.holds("a", 1, 0, 80_000, 1);
        world.holds("b", 1, 1, 80_000, 1);
        assertThat(preemption.preemptor.preempt(unbound("h", mebibytes(LARGE), 10, "Never"), proposal("n1", "a")))
                .isEmpty();
        world.cluster.leaderStatus = new Cluster.LeaderStatus.Waits("another one holds the Lease");
        assertThat(preemption.preemptor.preempt(high, proposal("n1", "a"))).isEmpty();
    }

    @Test
    void theProposalForAPodWithoutAGpuRequestIsUnchanged() {
        var proposal = proposal("n1", "a");
        assertThat(preemption.preemptor.preempt(unbound("h", "\"memory\": \"1Gi\"", 10, ""), proposal))
                .isEqualTo(proposal);
    }

    private List<String> victims(UnboundPod pod, String node, String... proposed) {
        Map<String, NodeVictims> answer = preemption.preemptor.preempt(pod, proposal(node, proposed));
        assertThat(answer).containsOnlyKeys(node);
        NodeVictims victims = Objects.requireNonNull(answer.get(node));
        return victims.uids().stream()
                .map(uid -> uid.substring("uid-".length()))
                .sorted()
                .toList();
    }

    private static Map<String, NodeVictims> proposal(String node, String... pods) {
        return Map.of(
                node,
                new NodeVictims(Arrays.stream(pods).map(pod -> "uid-" + pod).toList(), 0));
    }
}
