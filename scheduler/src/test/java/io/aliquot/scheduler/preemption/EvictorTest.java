package io.aliquot.scheduler.preemption;

import static io.aliquot.scheduler.extender.ExtenderFixture.mebibytes;
import static io.aliquot.scheduler.extender.ExtenderFixture.unbound;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.cluster.Cluster.EvictOutcome;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.placement.Feasibility;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.NodeRuntime;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Node 1 has 50,000 MiB free, and no GPU with more than 30,000. */
class EvictorTest {
    private static final Duration SECOND = Duration.ofSeconds(1);

    private final ExtenderFixture fixture = new ExtenderFixture();
    private final PreemptionFixture preemption = new PreemptionFixture(fixture);
    private final Evictor evictor = preemption.evictor();
    private BoundPod young;

    @BeforeEach
    void fragmented() {
        fixture.holds("old", 1, 0, 50_000, 1);
        young = fixture.holds("young", 1, 1, 60_000, 1);
    }

    @Test
    void theCheapestVictimIsEvictedAndBothPodsGetAnEvent() {
        waits("high", 40_000, 10);
        tick();
        assertThat(fixture.cluster.evicted).containsExactly("young");
        assertThat(fixture.cluster.notes)
                .containsExactly(
                        "young Preempted: Preempted by pod default/high of priority 10, which fits on no GPU of node n1 "
                                + "otherwise",
                        "high Preempting: on node n1 a GPU is made free by evicting default/young");
        assertThat(fixture.metrics
                        .counter("aliquot.evictions", "cause", "preemption", "outcome", "done")
                        .count())
                .isEqualTo(1);
    }

    @Test
    void theReservationLastsUntilThePodIsBoundAndNoFurtherPodIsEvicted() {
        waits("high", 40_000, 10);
        tick();
        fixture.leaves(young);
        ticks(50);
        assertThat(fixture.cluster.evicted).containsExactly("young");
        fixture.ledger.observeEnded("uid-young");
        var other = Gpus.request("APP:main: gpumem=50000");
        assertThat(fixture.ledger.feasibility("n1", "uid-other", other)).isInstanceOf(Feasibility.Refused.class);
        preemption.waker.wake();
        assertThat(fixture.cluster.woken).as("the node of the preemptor").containsExactly("n1");
        assertThat(fixture.filter("high", mebibytes(40_000), 10, "", "n1")).containsExactly("n1");
        assertThat(fixture.bind("high", "n1")).isEmpty();
        ticks(2);
        assertThat(preemption.reservations.all()).isEmpty();
        assertThat(fixture.cluster.evicted).containsExactly("young");
    }

    @Test
    void aCheaperVictimOnANodeWhoseRuntimeCannotStartThePreemptorIsNotEvicted() {
        fixture.runtime(1, new NodeRuntime(Map.of("", false), ""));
        fixture.runtime(2, new NodeRuntime(Map.of("", true), ""));
        fixture.holds("costly", 2, 0, 60_000, 5);
        fixture.holds("costlier", 2, 1, 60_000, 6);
        String inUserNamespace = "\"hostUsers\": false, \"priority\": 10";
        assertThat(fixture.filterWithSpec("high", mebibytes(40_000), inUserNamespace, "n1", "n2"))
                .isEmpty();
        tick();
        assertThat(fixture.cluster.evicted).containsExactly("costly");
    }

    @Test
    void deletingThePreemptorReleasesItsReservation() {
        waits("high", 40_000, 10);
        tick();
        fixture.leaves(young);
        fixture.ledger.observeEnded("uid-young");
        fixture.pending.forget("uid-high");
        tick();
        assertThat(fixture.ledger.feasibility("n1", "uid-other", Gpus.request("APP:main: gpumem=40000")))
                .isInstanceOf(Feasibility.Fits.class);
    }

    @Test
    void aPodDeletedDuringFilterDoesNotBecomePending() {
        fixture.pending.forget("uid-high");
        waits("high", 40_000, 10);
        assertThat(fixture.pending.pending()).isEmpty();
    }

    /** The pod was deleted before this process started, and kube-scheduler has not seen the deletion yet. */
    @Test
    void noPodIsEvictedForAPodThatDoesNotExist() {
        waits("high", 40_000, 10);
        fixture.cluster.version = OptionalLong.empty();
        tick();
        assertThat(fixture.cluster.evicted).isEmpty();
    }

    @Test
    void aPodDeletedDuringFilterKeepsNoReservation() {
        waits("high", 40_000, 10);
        tick();
        fixture.leaves(young);
        fixture.ledger.observeEnded("uid-young");
        fixture.pending.forget("uid-high");
        fixture.cluster.version = OptionalLong.empty();
        fixture.filter("high", mebibytes(40_000), 10, "", "n1");
        tick();
        assertThat(fixture.ledger.feasibility("n1", "uid-other", Gpus.request("APP:main: gpumem=40000")))
                .isInstanceOf(Feasibility.Fits.class);
    }

    @Test
    void aPodExcludedFromItsReservedNodePreemptsOnAnotherNode() {
        fixture.holds("there", 2, 0, 80_000, 9);
        fixture.holds("there-too", 2, 1, 80_000, 20);
        waits("high", 40_000, 10);
        tick();
        fixture.leaves(young);
        tick();
        waits("high", 40_000, 10, "n2");
        tick();
        fixture.ledger.observeEnded("uid-young");
        ticks(30);
        assertThat(preemption.reservations.holds("uid-high"))
                .as("kube-scheduler may not have seen the free capacity")
                .isTrue();
        fixture.pending.observe(unbound("high", mebibytes(40_000), 10, "PreemptLowerPriority"));
        tick();
        assertThat(preemption.reservations.holds("uid-high")).as("being tried").isTrue();
        assertThat(fixture.cluster.evicted).containsExactly("young");
        waits("high", 40_000, 10, "n2");
        tick();
        assertThat(fixture.cluster.evicted).containsExactly("young", "there");
        assertThat(fixture.ledger.feasibility("n1", "uid-other", Gpus.request("APP:main: gpumem=80000")))
                .isInstanceOf(Feasibility.Fits.class);
    }

    /** For example during a slow drain of the node. */
    @Test
    void aPodThatTerminatesLaterDoesNotExtendTheReservation() {
        fixture.holds("there", 2, 0, 80_000, 20);
        fixture.holds("there-too", 2, 1, 80_000, 20);
        waits("high", 40_000, 10);
        tick();
        fixture.leaves(young);
        fixture.ledger.observeEnded("uid-young");
        ticks(5);
        fixture.leaves(fixture.holds("slow", 1, 1, 1_000, 1));
        ticks(15);
        waits("high", 40_000, 10, "n2");
        tick();
        assertThat(preemption.reservations.holds("uid-high")).isFalse();
    }

    @Test
    void aPreemptorObservedDuringTheVictimSearchIsEvaluatedAgainBeforeAnyEviction() {
        waits("high", 40_000, 10);
        fixture.pass(SECOND);
        fixture.cluster.versionAsked =
                () -> fixture.pending.observe(unbound("high", mebibytes(40_000), 10, "PreemptLowerPriority"));
        evictor.evict();
        assertThat(fixture.cluster.evicted).isEmpty();
    }

    @Test
    void noPodOfEqualOrHigherPriorityIsEvicted() {
        waits("equal", 40_000, 1);
        ticks(30);
        assertThat(fixture.cluster.evicted).isEmpty();
    }

    @Test
    void aPodWithPreemptionPolicyNeverStaysPending() {
        fixture.filter("polite", mebibytes(40_000), 10, "Never", "n1");
        ticks(30);
        assertThat(fixture.cluster.evicted).isEmpty();
    }

    @Test
    void aPodThatADisruptionBudgetProtectsStaysAndAnotherIsEvicted() {
        fixture.budget("guarded", 0, "young");
        waits("high", 40_000, 10);
        tick();
        assertThat(fixture.cluster.evicted).containsExactly("old");
    }

    @Test
    void ifBudgetsProtectAllVictimsThePreemptorWaitsUntilOneAllowsADisruption() {
        fixture.budget("guarded", 0, "young", "old");
        waits("high", 40_000, 10);
        ticks(20);
        assertThat(fixture.cluster.evicted).isEmpty();
        fixture.budget("guarded", 1, "young", "old");
        ticks(11);
        assertThat(fixture.cluster.evicted)
                .as("kube-scheduler must retry the pod")
                .isEmpty();
        assertThat(fixture.cluster.woken).containsOnly("n1");
        waits("high", 40_000, 10);
        tick();
        assertThat(fixture.cluster.evicted).containsExactly("young");
    }

    @Test
    void podsThatKubeSchedulerDoesNotRetryAreWokenOnceAMinuteAndDoNotStarveOthers() {
        fixture.budget("guarded", 0, "young", "old");
        for (int i = 0; i < 20; i++) {
            waits("silent" + i, 40_000 + i, 10);
        }
        ticks(40);
        fixture.budget("guarded", 1, "young", "old");
        ticks(50);
        assertThat(fixture.cluster.woken).hasSize(1);
        ticks(60);
        assertThat(fixture.cluster.woken).hasSize(2);
        waits("high", 40_000, 9);
        tick();
        assertThat(fixture.cluster.evicted).containsExactly("young");
    }

    @Test
    void ifTheApiServerRefusesAnEvictionAnotherPodIsEvicted() {
        fixture.cluster.evictions.put("young", new EvictOutcome.Protected("budget guarded"));
        waits("high", 40_000, 10);
        tick();
        assertThat(fixture.cluster.evicted).containsExactly("young");
        assertThat(preemption.reservations.all()).isEmpty();
        tick();
        assertThat(fixture.cluster.evicted).containsExactly("young", "old");
    }

    @Test
    void noVictimIsEvictedUnlessAllVictimsCanBe() {
        fixture.holds("third", 1, 0, 20_000, 1);
        fixture.cluster.evictions.put("old", new EvictOutcome.Protected("budget guarded"));
        waits("high", 75_000, 10);
        tick();
        assertThat(fixture.cluster.rehearsed).isEmpty();
        assertThat(fixture.cluster.evicted).as("the other GPU needs one victim").containsExactly("young");
        fixture.cluster.evictions.put("young", new EvictOutcome.Protected("budget guarded"));
        ticks(2);
        assertThat(fixture.cluster.evicted).doesNotContain("third");
    }

    @Test
    void ofTwoVictimsNoneIsEvictedWhileTheApiServerWouldRefuseOne() {
        fixture.ledger.observeEnded("uid-young");
        fixture.holds("important", 1, 1, 60_000, 20);
        fixture.holds("third", 1, 0, 20_000, 1);
        fixture.cluster.evictions.put("old", new EvictOutcome.Protected("budget guarded"));
        waits("high", 75_000, 10);
        tick();
        assertThat(fixture.cluster.rehearsed).contains("old");
        assertThat(fixture.cluster.evicted).isEmpty();
        assertThat(preemption.reservations.all()).isEmpty();
        fixture.cluster.evictions.remove("old");
        ticks(30);
        waits("high", 75_000, 10);
        tick();
        assertThat(fixture.cluster.evicted).containsExactlyInAnyOrder("old", "third");
    }

    @Test
    void twoVictimsDoNotExceedABudgetThatAllowsOneDisruption() {
        fixture.holds("third", 1, 0, 20_000, 1);
        fixture.ledger.observeEnded("uid-young");
        fixture.holds("important", 1, 1, 60_000, 5);
        fixture.budget("guarded", 1, "old", "third");
        waits("high", 75_000, 10);
        tick();
        assertThat(fixture.cluster.evicted).containsExactly("important");
    }

    @Test
    void capacityOfTerminatingPodsIsUsedBeforeAnyEviction() {
        fixture.ledger.observeEnded("uid-young");
        fixture.leaves(fixture.holds("leaving", 1, 1, 60_000, 20));
        waits("high", 40_000, 10);
        tick();
        assertThat(fixture.cluster.evicted).isEmpty();
        assertThat(preemption.reservations.holds("uid-high")).isTrue();
    }

    /** Regression: a pod with a grace period of a year, once deleted, kept every preemptor of its node waiting. */
    @Test
    void aPodThatTerminatesLaterThanInTenMinutesIsNotWaitedFor() {
        fixture.ledger.observeEnded("uid-young");
        BoundPod slow = fixture.holds("slow", 1, 1, 60_000, 20);
        fixture.ledger.observeBound(BoundPods.leaving(slow, fixture.instant().plus(Duration.ofDays(365))));
        waits("high", 40_000, 10);
        tick();
        assertThat(fixture.cluster.evicted).containsExactly("old");
    }

    @Test
    void aVictimGetsAtMostTenMinutes() {
        young = withGrace(young, Duration.ofDays(365));
        waits("high", 40_000, 10);
        tick();
        assertThat(fixture.cluster.evicted).containsExactly("young");
        assertThat(fixture.cluster.graces).containsExactly(Map.entry("young", Duration.ofMinutes(10)));
        assertThat(fixture.metrics
                        .counter("aliquot.evictions", "cause", "preemption", "outcome", "done")
                        .count())
                .isEqualTo(1);
    }

    /** Regression: a Deployment of pods with a grace period of 599 s made each preemptor wait that long. */
    @Test
    void onceWaitedForTenMinutesTheOtherPodsOfANamespaceGetThirtySecondsForAnHour() {
        Duration patient = Duration.ofSeconds(599);
        BoundPod first = withGrace(young, patient);
        waits("high", 40_000, 10);
        tick();
        assertThat(fixture.cluster.evicted).containsExactly("young");
        assertThat(fixture.cluster.graces).as("its own").isEmpty();
        fixture.ledger.observeBound(BoundPods.leaving(first, fixture.instant().plus(patient)));
        ticks(590);
        assertThat(fixture.cluster.evicted).as("it is waited for").containsExactly("young");
        fixture.ledger.observeEnded("uid-young");
        fixture.holds("high", 1, 1, 40_000, 20);

        withGrace(fixture.holds("second", 1, 1, 20_000, 1), patient);
        preemptsFor("higher", "second", Duration.ofSeconds(30));
        fixture.pass(Duration.ofHours(1));
        withGrace(fixture.holds("third", 1, 1, 20_000, 1), patient);
        waits("highest", 40_000, 12);
        tick();
        assertThat(fixture.cluster.evicted).endsWith("third");
        assertThat(fixture.cluster.graces).as("its own again").doesNotContainKey("third");
    }

    /** Regression: so did one that was deleted again before each preemptor. */
    @Test
    void onceWaitedForAnotherTerminatingPodOfTheNamespaceIsWaitedForThirtySeconds() {
        Duration patient = Duration.ofSeconds(599);
        BoundPod terminating = BoundPods.leaving(young, fixture.instant().plus(patient), patient);
        fixture.ledger.observeBound(terminating);
        waits("high", 40_000, 10);
        ticks(590);
        assertThat(fixture.cluster.evicted).as("it is waited for").isEmpty();
        fixture.ledger.observeEnded("uid-young");
        fixture.holds("high", 1, 1, 40_000, 20);
        BoundPod next = fixture.holds("next", 1, 1, 20_000, 1);
        fixture.ledger.observeBound(BoundPods.leaving(next, fixture.instant().plus(patient), patient));
        waits("higher", 40_000, 11);
        tick();
        assertThat(fixture.cluster.evicted).containsExactly("old");
    }

    private void preemptsFor(String preemptor, String victim, Duration grace) {
        waits(preemptor, 40_000, 11);
        tick();
        assertThat(fixture.cluster.evicted).endsWith(victim);
        assertThat(fixture.cluster.graces).containsEntry(victim, grace);
        fixture.ledger.observeEnded("uid-" + victim);
        fixture.pending.forget("uid-" + preemptor);
        preemption.reservations.refresh();
    }

    private BoundPod withGrace(BoundPod pod, Duration grace) {
        BoundPod changed = BoundPods.leaving(pod, pod.leavesBy(), grace);
        fixture.ledger.observeBound(changed);
        return changed;
    }

    @Test
    void aNewLeaderDoesNotRepeatAnEviction() {
        waits("high", 40_000, 10);
        tick();
        fixture.leaves(young);
        preemption.reservations.release("uid-high");
        var next = preemption.evictor();
        waits("high", 40_000, 10);
        for (int i = 0; i < 10; i++) {
            fixture.pass(SECOND);
            next.evict();
        }
        assertThat(fixture.cluster.evicted).containsExactly("young");
        assertThat(preemption.reservations.holds("uid-high")).isTrue();
    }

    @Test
    void twoPreemptorsDoNotReserveTheSameCapacity() {
        waits("high", 50_000, 10);
        waits("higher", 40_000, 11);
        ticks(2);
        assertThat(fixture.cluster.evicted).containsExactly("young", "old");
        assertThat(fixture.cluster.notes.get(0)).contains("default/higher");
    }

    /** Regression: the order was that of the clock's values, which is wrong once the clock has overflowed. */
    @Test
    void ofTwoPreemptorsOfOnePriorityTheOneThatHasWaitedLongerIsServedFirstAlsoWhenTheClockOverflows() {
        waits("earlier", 40_000, 10);
        fixture.pass(SECOND.multipliedBy(3));
        waits("later", 50_000, 10);
        ticks(2);
        assertThat(fixture.cluster.evicted).containsExactly("young", "old");
        assertThat(fixture.cluster.notes.get(0)).contains("default/earlier");
    }

    @Test
    void twoPreemptorsThatFitTogetherShareTheCapacityOfOneVictim() {
        waits("high", 40_000, 10);
        waits("higher", 40_000, 11);
        ticks(2);
        assertThat(fixture.cluster.evicted).containsExactly("young");
        assertThat(preemption.reservations.all()).hasSize(2);
    }

    @Test
    void kubeSchedulerPreemptsBeforeTheEvictor() {
        waits("high", 40_000, 10);
        fixture.pass(Evictor.KUBE_SCHEDULER_TURN.dividedBy(2));
        evictor.evict();
        assertThat(fixture.cluster.evicted).isEmpty();
        var proposal = Map.of("n1", new NodeVictims(List.of("uid-old"), 0));
        assertThat(preemption.preemptor.preempt(unbound("high", mebibytes(40_000), 10, ""), proposal))
                .isNotEmpty();
        ticks(5);
        assertThat(fixture.cluster.evicted).isEmpty();
    }

    @Test
    void noPodIsEvictedFromANodeThatKubeSchedulerExcludes() {
        fixture.holds("there", 2, 0, 80_000, 0);
        fixture.holds("there-too", 2, 1, 80_000, 0);
        waits("high", 40_000, 10);
        tick();
        assertThat(fixture.cluster.evicted).containsExactly("young");
    }

    @Test
    void aReplicaThatDoesNotLeadEvictsNoPod() {
        waits("high", 40_000, 10);
        fixture.cluster.stopLeading();
        ticks(5);
        assertThat(fixture.cluster.evicted).isEmpty();
    }

    @Test
    void manyUnschedulableKindsOfPodsDoNotStarveAnother() {
        for (int i = 0; i < 3000; i++) {
            waits("p" + i, 80_001 + i, 10);
        }
        waits("high", 40_000, 9);
        ticks(400);
        assertThat(fixture.cluster.woken)
                .as("the pod was evaluated; kube-scheduler must retry it")
                .isNotEmpty();
    }

    private void waits(String name, int mebibytes, int priority) {
        waits(name, mebibytes, priority, "n1");
    }

    private void waits(String name, int mebibytes, int priority, String node) {
        assertThat(fixture.filter(name, mebibytes(mebibytes), priority, "", node))
                .isEmpty();
    }

    private void tick() {
        ticks(1);
    }

    private void ticks(int seconds) {
        for (int i = 0; i < seconds; i++) {
            fixture.pass(SECOND);
            evictor.evict();
            fixture.ledger.expire();
        }
    }
}
