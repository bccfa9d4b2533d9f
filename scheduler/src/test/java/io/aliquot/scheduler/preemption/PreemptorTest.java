package io.aliquot.scheduler.preemption;

import static io.aliquot.scheduler.extender.ExtenderFixture.mebibytes;
import static io.aliquot.scheduler.extender.ExtenderFixture.share;
import static io.aliquot.scheduler.extender.ExtenderFixture.unbound;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerInvariants;
import io.aliquot.scheduler.pending.UnboundPod;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeRuntime;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class PreemptorTest {
    private static final int LARGE = 80_000;

    private final ExtenderFixture fixture = new ExtenderFixture();
    private final PreemptionFixture preemption = new PreemptionFixture(fixture);
    private final UnboundPod high = unbound("high", mebibytes(LARGE), 10, "PreemptLowerPriority");

    @Test
    void victimsAreChosenPerGpuAndNotByTheNodesTotals() {
        fixture.holds("a", 1, 0, 50_000, 1);
        fixture.holds("b", 1, 1, 40_000, 1);
        fixture.holds("c", 1, 1, 40_000, 1);
        // By the totals of the node, evicting b and c frees enough memory too.
        assertThat(victims(high, "n1", "b", "c")).containsExactly("a");
    }

    @Test
    void aNodeWhoseRuntimeCannotStartThePodHasNoVictims() {
        fixture.holds("a", 1, 0, 50_000, 1);
        fixture.holds("b", 1, 1, 80_000, 11);
        fixture.runtime(1, new NodeRuntime(Map.of("", true), "nvidia")); // the pod has no RuntimeClass
        assertThat(preemption.preemptor.preempt(high, proposal("n1", "a"))).isEmpty();
        fixture.runtime(1, NodeRuntime.UNKNOWN);
        assertThat(victims(high, "n1", "a")).containsExactly("a");
    }

    @Test
    void victimsAreAddedIfTheProposalFreesNoGpu() {
        fixture.holds("a", 1, 0, 80_000, 5);
        fixture.holds("b", 1, 1, 40_000, 1);
        fixture.holds("c", 1, 1, 40_000, 1);
        assertThat(victims(high, "n1", "b")).containsExactly("b", "c");
    }

    @Test
    void noPodOfEqualOrHigherPriorityIsAVictimAndANodeWithoutEnoughVictimsIsOmitted() {
        fixture.holds("a", 1, 0, 50_000, 10);
        fixture.holds("b", 1, 0, 30_000, 1);
        fixture.holds("c", 1, 1, 80_000, 11);
        assertThat(preemption.preemptor.preempt(high, proposal("n1", "b"))).isEmpty();
    }

    @Test
    void theAnswerHasOnlyTheCheapestNode() {
        fixture.holds("a", 1, 0, 80_000, 3);
        fixture.holds("b", 1, 1, 80_000, 3);
        fixture.holds("c", 2, 0, 40_000, 2);
        fixture.holds("d", 2, 0, 40_000, 2);
        fixture.holds("e", 2, 1, 80_000, 9);
        Map<String, NodeVictims> both = Map.of(
                "n1", new NodeVictims(List.of("uid-a"), 0),
                "n2", new NodeVictims(List.of("uid-c"), 0));
        assertThat(preemption.preemptor.preempt(high, both).keySet()).containsExactly("n2");
    }

    @Test
    void proposedVictimsWithoutAGpuStayVictims() {
        fixture.holds("a", 1, 0, 80_000, 1);
        fixture.holds("b", 1, 1, 80_000, 2);
        fixture.holds("web", 1, 0, new HostResources(900, 0));
        assertThat(victims(high, "n1", "web", "b", "unknown")).containsExactly("a", "unknown", "web");
    }

    @Test
    void aVictimProposedForItsCpuStaysAVictimEvenIfAnotherPodHasTheCheaperGpu() {
        var half = new HostResources(500, 0);
        fixture.holds("a", 1, 1, half, share(1, 0, 80_000));
        fixture.holds("b", 1, 1, new HostResources(100, 0), share(1, 1, 80_000));
        String json = ExtenderFixture.podJson("high", mebibytes(LARGE), "")
                .replace("\"spec\": {", "\"spec\": {\"priority\": 10, ")
                .replace("\"resources\": {", "\"resources\": {\"requests\": {\"cpu\": \"600m\"}, ");
        var hungry = ExtenderFixture.unbound(json);
        assertThat(victims(hungry, "n1", "a")).containsExactly("a");
        fixture.holds("a", 1, 1, new HostResources(300, 0), share(1, 0, 80_000));
        fixture.holds("b", 1, 1, new HostResources(100, 0), share(1, 1, 80_000));
        preemption.reservations.release("uid-high");
        assertThat(victims(hungry, "n1", "a")).as("the younger pod").containsExactly("b");
    }

    /**
     * Regression: these requests were not counted, and the younger pod was evicted, whose CPU does not suffice: the
     * node has 1 CPU, and the older pod holds half of it.
     */
    @ParameterizedTest
    @ValueSource(
            strings = {
                "\"overhead\": {\"cpu\": \"600m\"}",
                "\"resources\": {\"requests\": {\"cpu\": \"600m\"}}",
                "\"initContainers\": [{\"name\": \"i\", \"resources\": {\"requests\": {\"cpu\": \"600m\"}}}]",
                "\"initContainers\": [{\"name\": \"s\", \"restartPolicy\": \"Always\", \"resources\": {\"requests\":"
                        + " {\"cpu\": \"300m\"}}}, {\"name\": \"i\", \"resources\": {\"requests\": {\"cpu\": \"300m\"}}}]",
            })
    void overheadInitContainersSidecarsAndPodLevelRequestsAreCountedSoThatThePodFitsAfterTheEviction(String requests) {
        fixture.holds("older", 1, 1, new HostResources(500, 0), share(1, 0, 80_000));
        fixture.holds("younger", 1, 1, new HostResources(100, 0), share(1, 1, 80_000));
        String json = ExtenderFixture.podJson("high", mebibytes(LARGE), "")
                .replace("\"spec\": {", "\"spec\": {\"priority\": 10, " + requests + ", ");
        assertThat(victims(ExtenderFixture.unbound(json), "n1", "older")).containsExactly("older");
    }

    @Test
    void ifAGpuIsFreeAProposedVictimBlocksAnotherResourceAndStaysAVictim() {
        fixture.holds("port", 1, 0, 10_000, 1);
        fixture.holds("cheaper", 1, 1, 10_000, 0);
        fixture.budget("guarded", 0, "port");
        var proposal = Map.of("n1", new NodeVictims(List.of("uid-port"), 1));
        assertThat(preemption.preemptor.preempt(unbound("high", mebibytes(40_000), 10, ""), proposal))
                .as("for example, a host port")
                .isEqualTo(proposal);
    }

    @Test
    void aVictimForAnotherResourceStaysAndTheCheapestVictimFreesTheGpu() {
        fixture.holds("port", 1, 0, 10_000, 5);
        fixture.holds("important", 1, 0, 70_000, 20);
        fixture.holds("old", 1, 1, 40_000, 3);
        fixture.holds("young", 1, 1, 40_000, 3);
        assertThat(victims(unbound("high", mebibytes(40_000), 10, ""), "n1", "port", "old"))
                .containsExactly("port", "young");
    }

    @Test
    void aVictimForAGpuAndAnotherResourceIsEvictedAtTheNextTry() {
        fixture.holds("port", 1, 0, 30_000, 2);
        fixture.holds("cheaper", 1, 1, 80_000, 1);
        var wide = unbound("wide", mebibytes(60_000), 10, "");
        assertThat(victims(wide, "n1", "port")).containsExactly("cheaper");
        fixture.ledger.observeEnded("uid-cheaper");
        preemption.reservations.refresh();
        assertThat(victims(wide, "n1", "port")).containsExactly("port");
    }

    @Test
    void exceededBudgetsAreCountedAndAvoidedAmongVictimsOfEqualPriority() {
        fixture.holds("a", 1, 0, 80_000, 1);
        fixture.holds("b", 1, 1, 80_000, 1);
        fixture.budget("guarded", 0, "b");
        assertThat(victims(high, "n1", "b")).containsExactly("a");
        fixture.budget("guarded", 0, "a");
        preemption.reservations.release("uid-high");
        assertThat(preemption.preemptor.preempt(high, proposal("n1", "b")).get("n1"))
                .isEqualTo(new NodeVictims(List.of("uid-b"), 1));
    }

    /** Regression: the second call counted the victims as gone, named one of them and no violation. */
    @Test
    void aRepeatedCallNamesTheSameVictimsAndViolationsUntilTheyTerminate() {
        BoundPod a = fixture.holds("a", 1, 0, 40_000, 1);
        BoundPod b = fixture.holds("b", 1, 0, 40_000, 1);
        fixture.holds("c", 1, 1, 80_000, 5);
        fixture.budget("guarded", 1, "a", "b");
        var proposal = Map.of("n1", new NodeVictims(List.of("uid-a", "uid-b", "web"), 1));
        var answer = Map.of("n1", new NodeVictims(List.of("uid-a", "uid-b", "web"), 2));

        assertThat(preemption.preemptor.preempt(high, proposal)).isEqualTo(answer);
        assertThat(preemption.preemptor.preempt(high, proposal)).isEqualTo(answer);
        fixture.leaves(a);
        assertThat(preemption.preemptor.preempt(high, proposal("n1", "b")))
                .as("no violation: the eviction of the other is over")
                .isEqualTo(proposal("n1", "b"));
        fixture.leaves(b);
        assertThat(preemption.preemptor.preempt(high, proposal("n1", "a"))).isEqualTo(proposal("n1", "a"));
    }

    @Test
    void aCandidateWithoutVictimsIsLeftToTheEvictorWhichRespectsBudgets() {
        fixture.holds("guarded", 1, 0, 80_000, 1);
        fixture.holds("free", 1, 1, 80_000, 2);
        fixture.holds("elsewhere", 2, 0, 80_000, 3);
        fixture.budget("guarded", 0, "guarded");
        var withoutVictims = new NodeVictims(List.of(), 0);
        var elsewhere = new NodeVictims(List.of("uid-elsewhere"), 0);
        fixture.filter("high", mebibytes(LARGE), 10, "PreemptLowerPriority", "n1");

        assertThat(preemption.preemptor.preempt(high, Map.of("n1", withoutVictims)))
                .isEmpty();
        fixture.pass(Evictor.KUBE_SCHEDULER_TURN);
        preemption.evictor().evict();
        assertThat(fixture.cluster.evicted).containsExactly("free");
        preemption.reservations.release("uid-high");
        assertThat(preemption.preemptor.preempt(high, Map.of("n1", withoutVictims, "n2", elsewhere)))
                .isEqualTo(Map.of("n2", elsewhere));
    }

    @Test
    void ifTerminatingPodsFreeEnoughNoOtherPodIsAVictim() {
        BoundPod a = fixture.holds("a", 1, 0, 80_000, 1);
        fixture.holds("b", 1, 1, 80_000, 1);
        fixture.leaves(a);
        assertThat(victims(high, "n1", "b")).containsExactly("a");
    }

    @Test
    void aPodTerminatingPastItsGracePeriodIsNotWaitedFor() {
        BoundPod a = fixture.holds("a", 1, 0, 80_000, 1);
        fixture.holds("b", 1, 1, 80_000, 1);
        fixture.leaves(a);
        fixture.pass(Duration.ofMinutes(2));
        assertThat(victims(high, "n1", "b")).containsExactly("b");
    }

    @Test
    void theReservationLastsWhileThePreemptorIsPending() {
        fixture.holds("a", 1, 0, 80_000, 1);
        fixture.holds("b", 1, 1, 80_000, 20);
        fixture.filter("high", mebibytes(LARGE), 10, "PreemptLowerPriority", "n1");
        assertThat(victims(high, "n1", "a")).containsExactly("a");
        fixture.ledger.observeEnded("uid-a");
        var request = Gpus.request("APP:main: gpumem=1000");
        assertThat(fixture.ledger.feasibility("n1", "uid-other", request)).isInstanceOf(Feasibility.Refused.class);
        assertThat(fixture.ledger.feasibility("n1", "uid-high", high.request())).isInstanceOf(Feasibility.Fits.class);
        for (int i = 0; i < 10; i++) {
            fixture.pass(Ledger.PREEMPTOR_RESERVATION_TIME.dividedBy(2));
            preemption.reservations.refresh();
            fixture.ledger.expire();
        }
        assertThat(fixture.ledger.feasibility("n1", "uid-other", request)).isInstanceOf(Feasibility.Refused.class);
        fixture.pending.forget("uid-high");
        preemption.reservations.refresh();
        assertThat(fixture.ledger.feasibility("n1", "uid-other", request)).isInstanceOf(Feasibility.Fits.class);
    }

    @Test
    void capacityIsReservedForAPreemptorThatFilterHasNotSeen() {
        var other = Gpus.request("APP:main: gpumem=1000");
        fixture.holds("a", 1, 0, 80_000, 1);
        fixture.holds("b", 1, 1, 80_000, 20);
        assertThat(victims(high, "n1", "a")).containsExactly("a");
        fixture.ledger.observeEnded("uid-a");
        preemption.reservations.refresh();
        assertThat(fixture.ledger.feasibility("n1", "uid-other", other)).isInstanceOf(Feasibility.Refused.class);
        fixture.pending.forget("uid-high");
        preemption.reservations.refresh();
        assertThat(fixture.ledger.feasibility("n1", "uid-other", other)).isInstanceOf(Feasibility.Fits.class);
    }

    @Test
    void noCapacityIsReservedForADeletedPreemptor() {
        fixture.holds("a", 1, 0, 80_000, 1);
        fixture.holds("b", 1, 1, 80_000, 20);
        fixture.cluster.version = OptionalLong.empty();
        victims(high, "n1", "a");
        preemption.reservations.refresh();
        assertThat(preemption.reservations.all()).isEmpty();
    }

    @Test
    void theReservationIsReleasedIfTheVictimIsNotEvicted() {
        fixture.holds("a", 1, 0, 80_000, 1);
        fixture.holds("b", 1, 1, 80_000, 20);
        fixture.filter("high", mebibytes(LARGE), 10, "PreemptLowerPriority", "n1");
        victims(high, "n1", "a");
        fixture.pass(Duration.ofMinutes(1)); // pod a was not evicted
        preemption.reservations.refresh();
        assertThat(preemption.reservations.all()).isEmpty();
        assertThat(LedgerInvariants.unconfirmed(fixture.ledger)).isEmpty();
    }

    @Test
    void aPodThatMayNotPreemptOrAReplicaThatDoesNotLeadEvictsNoPod() {
        fixture.holds("a", 1, 0, 80_000, 1);
        fixture.holds("b", 1, 1, 80_000, 1);
        assertThat(preemption.preemptor.preempt(unbound("h", mebibytes(LARGE), 10, "Never"), proposal("n1", "a")))
                .isEmpty();
        fixture.cluster.stopLeading();
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
