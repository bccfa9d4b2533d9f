package io.aliquot.scheduler.resize;

import static io.aliquot.scheduler.extender.ExtenderFixture.id;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.PodState;
import io.aliquot.scheduler.cluster.Cluster.WriteOutcome;
import io.aliquot.scheduler.cluster.FakeCluster;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.ledger.ContainerShareChange;
import io.aliquot.scheduler.ledger.LedgerInvariants;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class ResizerTest {
    private static final String GPU = Gpus.uuid(1, 0);

    private final ExtenderFixture fixture = new ExtenderFixture();
    private final Resizer resizer = new Resizer(fixture.ledger, fixture.cluster, fixture.reconciler);

    @BeforeEach
    void aPodHolds3000() {
        fixture.ledger.observeBound(ExtenderFixture.bound("a", 1, 5, 3000));
    }

    @Test
    void aResizeIsWrittenForItsPodVersionWithTheResizeFence() {
        assertThat(to(4000)).isInstanceOf(Resizer.Result.Done.class);
        assertThat(fixture.cluster.sent)
                .containsExactly(new FakeCluster.Sent(
                        id("a"),
                        5,
                        "",
                        Map.of(
                                Annotations.RESIZE_FENCE,
                                "aliquot-1_uuid/3",
                                Annotations.vgpu("main"),
                                GPU + " memory=4000Mi cores=0 policy=fixed context=0Mi\n",
                                Annotations.TOTAL_MEMORY_MIB,
                                "4000",
                                Annotations.TOTAL_CORES,
                                "0")));
        assertThat(taken()).isEqualTo(4000);
        fixture.ledger.observeBound(ExtenderFixture.bound("a", 1, 6, 4000));
        assertThat(fixture.ledger.unresolvedBase("uid-a")).isEmpty();
        assertThat(taken()).isEqualTo(4000);
    }

    @Test
    void aSecondResizeDoesNotWaitForTheWatch() {
        fixture.cluster.state = new PodState.Bound(ExtenderFixture.bound("a", 1, 6, 4000));
        assertThat(to(4000)).isInstanceOf(Resizer.Result.Done.class);
        fixture.cluster.state = new PodState.Bound(ExtenderFixture.bound("a", 1, 7, 5000));
        assertThat(to(5000)).isInstanceOf(Resizer.Result.Done.class);
        assertThat(fixture.cluster.sent).extracting(FakeCluster.Sent::version).containsExactly(5L, 6L);
        assertThat(fixture.cluster.movedOn).isEmpty();
        assertThat(taken()).isEqualTo(5000);
    }

    @Test
    void aResizeToTheCurrentAmountIsNotWritten() {
        assertThat(to(3000)).isInstanceOf(Resizer.Result.Done.class);
        assertThat(fixture.cluster.sent).isEmpty();
    }

    @Test
    void aStandbyResizesNoPod() {
        fixture.cluster.leaderStatus = new Cluster.LeaderStatus.NotLeading("another one leads");
        assertThat(to(4000)).isEqualTo(new Resizer.Result.Unavailable("another one leads"));
        assertThat(fixture.cluster.sent).isEmpty();
    }

    @Test
    void anImpossibleOrInvalidResizeIsNotWritten() {
        assertThat(to(ExtenderFixture.MEMORY + 1)).isInstanceOf(Resizer.Result.Refused.class);
        assertThat(resize("nobody")).isEqualTo(new Resizer.Result.NotFound());
        assertThatThrownBy(() -> resize("a", new ContainerShareChange("side", 1, null, null)))
                .isInstanceOf(FormatException.class);
        assertThat(fixture.cluster.sent).isEmpty();
        assertThat(taken()).isEqualTo(3000);
    }

    @Test
    void aResizeThatTheApiServerRefusesIsRolledBack() {
        fixture.cluster.outcomes.add(new WriteOutcome.Refused("a policy"));
        assertThat(to(4000)).isEqualTo(new Resizer.Result.Refused("a policy"));
        assertThat(taken()).isEqualTo(3000);
        assertThat(fixture.ledger.unresolvedBase("uid-a")).isEmpty();
    }

    @Test
    void aResizeThatABusyApiServerRejectsIsRolledBackAndCanBeRetried() {
        fixture.cluster.outcomes.add(new WriteOutcome.Unheard("busy"));
        assertThat(to(4000)).isEqualTo(new Resizer.Result.Unavailable("busy"));
        assertThat(taken()).isEqualTo(3000);
        assertThat(fixture.ledger.unresolvedBase("uid-a")).isEmpty();
    }

    @Test
    void aRefusalAfterLosingTheLeaseIsReportedAsUnavailable() {
        fixture.cluster.outcomes.add(new WriteOutcome.Refused("the fence is old"));
        fixture.cluster.meanwhile = () -> {
            if (!fixture.cluster.sent.isEmpty()) {
                fixture.cluster.leaderStatus = new Cluster.LeaderStatus.NotLeading("another one leads");
            }
        };
        assertThat(to(4000)).isEqualTo(new Resizer.Result.Unavailable("the fence is old"));
    }

    @Test
    void afterAConflictThePodIsResizedAtItsCurrentVersion() {
        fixture.cluster.outcomes.add(new WriteOutcome.Conflicts("version"));
        fixture.cluster.state = new PodState.Bound(ExtenderFixture.bound("a", 1, 7, 3000));
        assertThat(to(4000)).isInstanceOf(Resizer.Result.Done.class);
        assertThat(fixture.cluster.sent).extracting(FakeCluster.Sent::version).containsExactly(5L, 7L);
    }

    @Test
    void aResizeWithALostAnswerIsDoneIfThePodHasTheNewAmount() {
        fixture.cluster.outcomes.add(new WriteOutcome.Unknown("time-out"));
        fixture.cluster.state = new PodState.Bound(ExtenderFixture.bound("a", 1, 6, 4000));
        assertThat(to(4000)).isInstanceOf(Resizer.Result.Done.class);
        assertThat(fixture.cluster.sent).hasSize(1);
        assertThat(taken()).isEqualTo(4000);
    }

    @Test
    void aResizeWithALostAnswerIsInvalidatedBeforeTheRetry() {
        fixture.cluster.outcomes.add(new WriteOutcome.Unknown("time-out"));
        fixture.cluster.state = new PodState.Bound(ExtenderFixture.bound("a", 1, 5, 3000));
        fixture.cluster.movedOnTo = new PodState.Bound(ExtenderFixture.bound("a", 1, 6, 3000));
        assertThat(to(4000)).isInstanceOf(Resizer.Result.Done.class);
        assertThat(fixture.cluster.movedOn).containsExactly(5L);
        assertThat(fixture.cluster.sent).extracting(FakeCluster.Sent::version).containsExactly(5L, 6L);
    }

    @Test
    void whileTheOutcomeIsUnknownTheLargerAmountIsAllocated() {
        fixture.cluster.outcomes.add(new WriteOutcome.Unknown("time-out"));
        assertThat(to(4000)).isInstanceOf(Resizer.Result.Unavailable.class);
        assertThat(taken()).isEqualTo(4000);
        assertThat(fixture.ledger.unresolvedBase("uid-a")).hasValue(5);
        assertThat(to(100))
                .isEqualTo(
                        new Resizer.Result.Unavailable("the outcome of an earlier resize is not known yet; try again"));
    }

    @Test
    void resizingADeletedPodReturnsNotFound() {
        fixture.cluster.outcomes.add(new WriteOutcome.Conflicts("uid"));
        fixture.cluster.state = new PodState.Gone();
        assertThat(to(4000)).isEqualTo(new Resizer.Result.NotFound());
    }

    private Resizer.Result to(int memoryMiB) {
        return resize("a", new ContainerShareChange("main", memoryMiB, null, CorePolicy.FIXED));
    }

    private Resizer.Result resize(String pod, ContainerShareChange... changes) {
        return resizer.resize(ExtenderFixture.id(pod), List.of(changes), OptionalLong.empty());
    }

    private long taken() {
        GpuAmount taken =
                Objects.requireNonNull(LedgerInvariants.taken(fixture.ledger).get(GPU));
        return taken.memoryMiB();
    }
}
