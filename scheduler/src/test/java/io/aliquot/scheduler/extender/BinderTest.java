package io.aliquot.scheduler.extender;

import static io.aliquot.scheduler.extender.ExtenderFixture.id;
import static io.aliquot.scheduler.extender.ExtenderFixture.mebibytes;
import static io.aliquot.scheduler.extender.ExtenderFixture.pod;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.cluster.Cluster.PodState;
import io.aliquot.scheduler.cluster.Cluster.WriteOutcome;
import io.aliquot.scheduler.cluster.FakeCluster;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerInvariants;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.recovery.WriteReconciler;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

class BinderTest {
    private final ExtenderFixture fixture = new ExtenderFixture();

    @BeforeEach
    void aPodIsBeingPlaced() {
        fixture.filterAndPrioritize(Placement.BINPACK, 0).filter(pod("a", mebibytes(80_000)), List.of("n1", "n2"));
    }

    @Test
    void oneBindingCarriesNodeAllocationAndFence() {
        assertThat(fixture.binder.bind(id("a"), "n1").error()).isEmpty();
        assertThat(fixture.cluster.sent)
                .containsExactly(new FakeCluster.Sent(
                        id("a"),
                        1,
                        "n1",
                        Map.of(
                                "aliquot.io/fence",
                                "aliquot-1_uuid/3",
                                "aliquot.io/vgpu.main",
                                Gpus.uuid(1, 0) + " memory=80000Mi cores=0 policy=fixed context=0Mi\n",
                                "aliquot.io/visible-devices.main",
                                Gpus.uuid(1, 0),
                                "aliquot.io/total-memory-mib",
                                "80000",
                                "aliquot.io/total-cores",
                                "0")));
    }

    /** The requests name 3000, 10 and nothing. An init container ends before the others begin. */
    @Test
    void theTotalsAreExactWhereRequestsArePerVgpuOrPercentagesOrWholeCards() {
        assertThat(totals("two", "\"aliquot.io/vgpu\": 2, \"nvidia.com/gpumem\": 3000, \"nvidia.com/gpucores\": 30"))
                .isEqualTo("6000 MiB, 60 cores");
        assertThat(totals("percent", "\"aliquot.io/vgpu\": 1, \"nvidia.com/gpumem-percentage\": 10"))
                .isEqualTo("8000 MiB, 0 cores");
        assertThat(totals("card", "\"aliquot.io/vgpu\": 1")).isEqualTo("80000 MiB, 100 cores");
    }

    /** Regression: the sum of what its GPUs hold, 60000 and 40000 MiB, where the quota counts 80000. */
    @Test
    void theTotalsAreWhatQuotasCountAlsoOnSeveralGpus() {
        String main = "\"aliquot.io/vgpu\": 2, \"nvidia.com/gpumem\": 40000";
        String json = ExtenderFixture.podJson("steps", main, "")
                .replace(
                        "\"spec\": {",
                        "\"spec\": {\"initContainers\": [{\"name\": \"init\", \"resources\": {\"limits\": {"
                                + mebibytes(60_000) + "}}}], ");
        assertThat(totals("steps", ExtenderFixture.read(json))).isEqualTo("80000 MiB, 0 cores");
    }

    private String totals(String name, String limits) {
        return totals(name, pod(name, limits));
    }

    private String totals(String name, Wire.Pod pod) {
        var cluster = new ExtenderFixture();
        cluster.filterAndPrioritize(Placement.BINPACK, 0).filter(pod, List.of("n1", "n2"));
        assertThat(cluster.bind(name, "n1")).isEmpty();
        Map<String, String> annotations = cluster.cluster.sent.getFirst().annotations();
        return annotations.get("aliquot.io/total-memory-mib") + " MiB, " + annotations.get("aliquot.io/total-cores")
                + " cores";
    }

    /**
     * Arguments of the test: outcome of the Binding, state of the pod when read, state after its resourceVersion is
     * bumped; whether bind succeeds, the node that keeps the allocation, and the number of Bindings sent.
     */
    static List<Arguments> outcomes() {
        var done = new WriteOutcome.Done();
        var refused = new WriteOutcome.Refused("403");
        var unheard = new WriteOutcome.Unheard("429");
        var conflicts = new WriteOutcome.Conflicts("409");
        var unknown = new WriteOutcome.Unknown("timeout");
        var unbound = unbound(1);
        var later = unbound(2);
        var malformed = new PodState.Malformed(2, "nonsense");
        var here = new PodState.Bound(ExtenderFixture.bound("a", 1, 2, 80_000));
        var elsewhere = new PodState.Bound(ExtenderFixture.bound("a", 2, 2, 80_000));
        var gone = new PodState.Gone();
        var unreadable = new PodState.Unreadable("timeout");
        return List.of(
                Arguments.of(done, unreadable, unreadable, true, "n1", 1),
                Arguments.of(refused, unreadable, unreadable, false, "", 1),
                Arguments.of(unheard, unreadable, unreadable, false, "", 1),
                Arguments.of(conflicts, here, unreadable, true, "n1", 1),
                Arguments.of(conflicts, elsewhere, unreadable, false, "n2", 1),
                Arguments.of(conflicts, gone, unreadable, false, "", 1),
                Arguments.of(conflicts, unbound, unreadable, false, "", 1),
                Arguments.of(conflicts, later, unreadable, true, "n1", 2),
                Arguments.of(conflicts, malformed, unreadable, false, "", 1),
                Arguments.of(conflicts, unreadable, unreadable, false, "n1", 1),
                Arguments.of(unknown, here, unreadable, true, "n1", 1),
                Arguments.of(unknown, elsewhere, unreadable, false, "n2", 1),
                Arguments.of(unknown, gone, unreadable, false, "", 1),
                Arguments.of(unknown, later, unreadable, false, "", 1),
                Arguments.of(unknown, malformed, unreadable, false, "", 1),
                Arguments.of(unknown, unbound, later, false, "", 1),
                Arguments.of(unknown, unbound, here, true, "n1", 1),
                Arguments.of(unknown, unbound, gone, false, "", 1),
                Arguments.of(unknown, unbound, unreadable, false, "n1", 1),
                Arguments.of(unknown, unreadable, unreadable, false, "n1", 1));
    }

    @ParameterizedTest
    @MethodSource("outcomes")
    void theAllocationIsKeptIfThePodMayBeBound(
            WriteOutcome outcome, PodState found, PodState movedOnTo, boolean bound, String kept, int bindings) {
        fixture.cluster.outcomes.add(outcome);
        fixture.cluster.state = found;
        fixture.cluster.movedOnTo = movedOnTo;
        assertThat(fixture.binder.bind(id("a"), "n1").error().isEmpty()).isEqualTo(bound);
        assertThat(fixture.ledger.assumedNode("uid-a").orElse("")).isEqualTo(kept);
        assertThat(fixture.cluster.sent).hasSize(bindings);
        assertThat(LedgerInvariants.views(fixture.ledger).stream()
                        .filter(view -> !view.holdings().isEmpty())
                        .map(NodeView::name))
                .isEqualTo(kept.isEmpty() ? List.of() : List.of(kept));
    }

    @Test
    void theFirstBindingHasTheFilteredVersionAndTheRetryTheCurrentOne() {
        fixture.cluster.version = OptionalLong.of(0); // the watch lags
        fixture.cluster.outcomes.add(new WriteOutcome.Conflicts("409"));
        fixture.cluster.state = unbound(9);
        assertThat(fixture.binder.bind(id("a"), "n1").error()).isEmpty();
        assertThat(fixture.cluster.sent).extracting(FakeCluster.Sent::version).containsExactly(1L, 9L);
    }

    /** kube-scheduler may wait minutes for a volume between filter and bind. */
    @Test
    void theRequestIsReadAgainIfThePodChangedSinceFilter() {
        fixture.cluster.version = OptionalLong.of(7);
        fixture.cluster.state = new PodState.Unbound(7, Gpus.request("APP:main: gpumem=70000"));
        assertThat(fixture.binder.bind(id("a"), "n1").error()).isEmpty();
        assertThat(fixture.cluster.sent).hasSize(1).first().satisfies(sent -> {
            assertThat(sent.version()).isEqualTo(7);
            assertThat(sent.annotations().get("aliquot.io/vgpu.main")).contains("memory=70000Mi");
        });
    }

    /** By then kube-scheduler has timed out and may place the pod on another node. */
    @Test
    void aSlowBindingIsNotRetried() {
        fixture.cluster.outcomes.add(new WriteOutcome.Conflicts("409"));
        fixture.cluster.state = unbound(9);
        fixture.cluster.whileBinding = () -> fixture.pass(Binder.SECOND_TRY_UNTIL);
        assertThat(fixture.binder.bind(id("a"), "n1").error()).isEqualTo("409");
        assertThat(fixture.cluster.sent).hasSize(1);
        assertThat(LedgerInvariants.unconfirmed(fixture.ledger)).isEmpty();
    }

    @Test
    void aSecondConflictReleasesTheAllocation() {
        fixture.cluster.outcomes.add(new WriteOutcome.Conflicts("409"));
        fixture.cluster.outcomes.add(new WriteOutcome.Conflicts("409 again"));
        fixture.cluster.state = unbound(9);
        assertThat(fixture.binder.bind(id("a"), "n1").error()).isEqualTo("409 again");
        assertThat(LedgerInvariants.unconfirmed(fixture.ledger)).isEmpty();
    }

    @Test
    void filterAcceptsOnlyTheNodeOfAnUnresolvedBind() {
        loseTheAnswer();
        var answer = fixture.filterAndPrioritize(Placement.SPREAD, 0)
                .filter(pod("a", mebibytes(80_000)), List.of("n1", "n2"));
        assertThat(answer.nodeNames()).containsExactly("n1");
        assertThat(answer.failedAndUnresolvableNodes())
                .isEqualTo(Map.of("n2", "the outcome of an earlier bind of this pod is not known yet"));
    }

    @Test
    void aLaterBindFirstResolvesTheEarlierOne() {
        loseTheAnswer();
        assertThat(fixture.binder.bind(id("a"), "n1").error())
                .isEqualTo("the outcome of an earlier bind is not known; the pod cannot be read: down");
        assertThat(fixture.cluster.sent).hasSize(1);
        fixture.cluster.state = unbound(1);
        fixture.cluster.movedOnTo = unbound(2);
        assertThat(fixture.binder.bind(id("a"), "n2").error()).isEmpty();
        assertThat(fixture.cluster.sent).extracting(FakeCluster.Sent::version).containsExactly(1L, 2L);
        assertThat(fixture.ledger.assumedNode("uid-a")).contains("n2");
    }

    @Test
    void anUnknownOutcomeIsResolvedOnceThePodCanBeRead() {
        loseTheAnswer();
        fixture.pass(WriteReconciler.RETRY_AFTER);
        fixture.reconciler.reconcileAll();
        assertThat(fixture.ledger.assumedNode("uid-a")).contains("n1");
        fixture.cluster.state = unbound(1);
        fixture.cluster.movedOnTo = unbound(2);
        fixture.reconciler.reconcileAll();
        assertThat(fixture.cluster.movedOn).containsExactly(1L);
        assertThat(LedgerInvariants.unconfirmed(fixture.ledger)).isEmpty();
    }

    @Test
    void podsThatCannotBeResolvedDoNotBlockOthers() {
        fixture.ledger.observeEnded("uid-a");
        List<String> stuck = List.of("s1", "s2", "s3", "s4", "s5");
        fixture.cluster.movedOnTo = new PodState.Unreadable("403");
        for (String pod : stuck) {
            loseTheAnswer(pod, 100);
            fixture.cluster.states.put(pod, unbound(1)); // needs a version bump, which is refused
        }
        loseTheAnswer("b", 100);
        fixture.cluster.states.put("b", unbound(2));
        fixture.pass(WriteReconciler.RETRY_AFTER);
        for (int round = 0; round <= stuck.size(); round++) {
            fixture.reconciler.reconcileAll();
        }
        assertThat(fixture.ledger.assumedNode("uid-b")).isEmpty();
        assertThat(fixture.ledger.assumedNode("uid-s1")).contains("n1");
    }

    private void loseTheAnswer(String pod, int memoryMiB) {
        fixture.filterAndPrioritize(Placement.BINPACK, 0).filter(pod(pod, mebibytes(memoryMiB)), List.of("n1"));
        loseTheAnswer(pod);
    }

    private void loseTheAnswer() {
        loseTheAnswer("a");
    }

    private void loseTheAnswer(String pod) {
        fixture.cluster.outcomes.add(new WriteOutcome.Unknown("timeout"));
        fixture.cluster.state = new PodState.Unreadable("down");
        assertThat(fixture.binder.bind(id(pod), "n1").error()).isEqualTo("timeout; the pod cannot be read: down");
    }

    private static PodState unbound(long version) {
        return new PodState.Unbound(version, Gpus.request("APP:main: gpumem=80000"));
    }

    @Test
    void aPodThatIsNoLongerCachedIsReadAgain() {
        fixture.pending.forget("uid-a");
        fixture.cluster.state = unbound(3);
        assertThat(fixture.binder.bind(id("a"), "n1").error()).isEmpty();
        assertThat(fixture.cluster.sent).extracting(FakeCluster.Sent::version).containsExactly(3L);
    }

    @Test
    void bindFailsIfTheNodeHasFilledUpSinceFilter() {
        fixture.pass(Ledger.RESERVATION_TIME.plusMillis(1));
        fixture.ledger.expire();
        fixture.takenElsewhere("b", 1, 0, 10);
        fixture.takenElsewhere("c", 1, 1, 10);
        assertThat(fixture.binder.bind(id("a"), "n1").error()).isEqualTo("n1: no GPU with 80000 MiB free");
        assertThat(fixture.cluster.sent).isEmpty();
    }

    @Test
    void aStandbyBindsNoPod() {
        fixture.cluster.stopLeading();
        assertThat(fixture.binder.bind(id("a"), "n1").error()).isEqualTo("another one holds the Lease");
        assertThat(fixture.cluster.sent).isEmpty();
    }

    @Test
    void aPodThatTheWatchReportedBoundIsNotBoundAgain() {
        fixture.takenElsewhere("a", 1, 0, 80_000);
        assertThat(fixture.binder.bind(id("a"), "n1").error()).isEmpty();
        assertThat(fixture.binder.bind(id("a"), "n2").error()).isEqualTo("the pod is bound to node n1 already");
        assertThat(fixture.cluster.sent).isEmpty();
    }
}
