package io.aliquot.scheduler.extender;

import static io.aliquot.scheduler.extender.World.id;
import static io.aliquot.scheduler.extender.World.mebibytes;
import static io.aliquot.scheduler.extender.World.pod;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Placement;
import io.aliquot.scheduler.extender.Cluster.BindOutcome;
import io.aliquot.scheduler.extender.Cluster.PodState;
import io.aliquot.scheduler.extender.Cluster.Standing;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.placement.Gpus;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

class BinderTest {
    private final World world = new World();
    private final PodState unbound = new PodState.Unbound(Gpus.ask("APP:main: gpumem=80000"));

    @BeforeEach
    void aPodIsBeingPlaced() {
        world.placing(Placement.BINPACK, 0).filter(pod("a", mebibytes(80_000)), List.of("n1", "n2"));
    }

    @Test
    void oneWriteCarriesNodeAllocationAndFence() {
        assertThat(world.binder.bind(id("a"), "n1").error()).isEmpty();
        assertThat(world.cluster.sent)
                .containsExactly(new FakeCluster.Sent(
                        id("a"),
                        "n1",
                        Map.of(
                                "aliquot.io/fence",
                                "aliquot-1_uuid/3",
                                "aliquot.io/vgpu.main",
                                Gpus.uuid(1, 0) + " memory=80000Mi cores=0 policy=fixed priority=0 context=0Mi\n",
                                "aliquot.io/visible-devices.main",
                                Gpus.uuid(1, 0))));
    }

    /** Outcome of the write, what a reading then finds, whether the pod counts as bound, whether its share is kept. */
    static List<Arguments> outcomes() {
        var done = new BindOutcome.Done();
        var refused = new BindOutcome.Refused("403");
        var conflicts = new BindOutcome.Conflicts("409");
        var unknown = new BindOutcome.Unknown("timeout");
        var unbound = new PodState.Unbound(Gpus.ask("APP:main: gpumem=80000"));
        var here = new PodState.Bound("n1");
        var elsewhere = new PodState.Bound("n2");
        var gone = new PodState.Gone();
        var unreadable = new PodState.Unreadable("timeout");
        return List.of(
                Arguments.of(done, unreadable, true, true),
                Arguments.of(refused, unreadable, false, false),
                Arguments.of(conflicts, here, true, true),
                Arguments.of(conflicts, elsewhere, false, false),
                Arguments.of(conflicts, gone, false, false),
                Arguments.of(conflicts, unbound, false, false),
                Arguments.of(conflicts, unreadable, false, true),
                Arguments.of(unknown, here, true, true),
                Arguments.of(unknown, elsewhere, false, false),
                Arguments.of(unknown, gone, false, false),
                Arguments.of(unknown, unbound, false, true),
                Arguments.of(unknown, unreadable, false, true));
    }

    @ParameterizedTest
    @MethodSource("outcomes")
    void everyOutcomeKeepsTheShareIfThePodMayHaveIt(BindOutcome outcome, PodState found, boolean bound, boolean kept) {
        world.cluster.outcomes.add(outcome);
        world.cluster.state = found;
        assertThat(world.binder.bind(id("a"), "n1").error().isEmpty()).isEqualTo(bound);
        assertThat(world.ledger.unsettled("uid-a").isPresent()).isEqualTo(kept);
        long full = world.ledger.report().stream()
                .filter(gpu -> gpu.taken().memoryMiB() > 0)
                .count();
        assertThat(full).isEqualTo(kept ? 1 : 0);
    }

    @Test
    void whileTheOutcomeIsUnknownThePodIsOfferedThatNodeAloneAndTheSameGpus() {
        world.cluster.outcomes.add(new BindOutcome.Unknown("timeout"));
        world.cluster.state = unbound;
        world.binder.bind(id("a"), "n1");
        var answer = world.placing(Placement.SPREAD, 0).filter(pod("a", mebibytes(80_000)), List.of("n1", "n2"));
        assertThat(answer.nodeNames()).containsExactly("n1");
        assertThat(answer.failedNodes())
                .isEqualTo(Map.of("n2", "the outcome of an earlier bind of this pod is not known yet"));
        assertThat(world.binder.bind(id("a"), "n1").error()).isEmpty();
        assertThat(world.cluster.sent.get(1)).isEqualTo(world.cluster.sent.get(0));
    }

    @Test
    void theRefusalOfASecondTryProvesNothingAboutTheFirst() {
        world.cluster.outcomes.add(new BindOutcome.Unknown("timeout"));
        world.cluster.outcomes.add(new BindOutcome.Refused("403"));
        world.cluster.state = unbound;
        world.binder.bind(id("a"), "n1");
        world.pass(Binder.GIVEN_UP.minusSeconds(1));
        assertThat(world.binder.bind(id("a"), "n1").error()).isEqualTo("403");
        world.pass(Duration.ofSeconds(2));
        world.binder.settle();
        assertThat(world.ledger.unsettled("uid-a"))
                .as("the second may still be on its way")
                .contains("n1");
        world.pass(Binder.GIVEN_UP);
        world.binder.settle();
        assertThat(world.ledger.unsettled("uid-a")).isEmpty();
    }

    @Test
    void anUnknownOutcomeIsDecidedOnceTheServerSurelyGaveUp() {
        world.cluster.outcomes.add(new BindOutcome.Unknown("timeout"));
        world.cluster.state = unbound;
        world.binder.bind(id("a"), "n1");
        world.binder.settle();
        assertThat(world.ledger.unsettled("uid-a")).contains("n1");
        world.pass(Binder.GIVEN_UP);
        world.cluster.state = new PodState.Unreadable("still down");
        world.binder.settle();
        assertThat(world.ledger.unsettled("uid-a")).contains("n1");
        world.cluster.state = unbound;
        world.binder.settle();
        assertThat(world.ledger.unsettled("uid-a")).isEmpty();
        assertThat(world.ledger.reservations()).isZero();
    }

    @Test
    void aPodThatFilterForgotIsReadAgain() {
        world.pending.forget("uid-a");
        world.cluster.state = unbound;
        assertThat(world.binder.bind(id("a"), "n1").error()).isEmpty();
        assertThat(world.cluster.sent).hasSize(1);
    }

    @Test
    void aNodeThatFilledUpInTheMeantimeIsAConflict() {
        world.pass(Ledger.EXPECTED_FOR.plusMillis(1));
        world.waker.wake();
        world.takenElsewhere("b", 1, 0, 10);
        world.takenElsewhere("c", 1, 1, 10);
        assertThat(world.binder.bind(id("a"), "n1").error()).isEqualTo("n1: no GPU with 80000 MiB free");
        assertThat(world.cluster.sent).isEmpty();
    }

    @Test
    void whoDoesNotLeadBindsNothing() {
        world.cluster.standing = new Standing.Waits("another one holds the Lease");
        assertThat(world.binder.bind(id("a"), "n1").error()).isEqualTo("another one holds the Lease");
        assertThat(world.cluster.sent).isEmpty();
    }

    @Test
    void aPodThatTheWatchSawBoundIsNotBoundAgain() {
        world.takenElsewhere("a", 1, 0, 80_000);
        assertThat(world.binder.bind(id("a"), "n1").error()).isEmpty();
        assertThat(world.binder.bind(id("a"), "n2").error()).isEqualTo("the pod is bound to node n1 already");
        assertThat(world.cluster.sent).isEmpty();
    }
}
