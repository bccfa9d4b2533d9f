package io.aliquot.scheduler.explain;

import static io.aliquot.scheduler.extender.ExtenderFixture.id;
import static io.aliquot.scheduler.extender.ExtenderFixture.mebibytes;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.preemption.Budgets;
import java.time.Duration;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Nodes 1 and 2 have 30,000 MiB free on each GPU. */
class PendingPodEventsTest {
    private final ExtenderFixture fixture = new ExtenderFixture();
    private final PendingPodEvents events = new PendingPodEvents(
            fixture.pending,
            new Explainer(fixture.ledger, fixture.scoring, new Budgets()),
            fixture.ledger,
            fixture.cluster,
            fixture.now::get);

    @BeforeEach
    void fill() {
        fixture.takenOnEachGpu(50_000);
    }

    @Test
    void aPendingPodGetsOneEventWithTheReason() {
        waits("a", 40_000);
        for (int i = 0; i < 10; i++) {
            turn();
        }

        assertThat(fixture.cluster.notes)
                .singleElement()
                .asString()
                .startsWith("a WaitingForGPU: 0/2 nodes fit")
                .contains("no GPU with 40000 MiB free", "lacks 10000 MiB");
    }

    @Test
    void aPodThatKubeSchedulerNeverSendsGetsAnEventAboutAllNodes() {
        fixture.pending.markedUnschedulable(id("a"), Gpus.request("APP:main: gpumem=40000"));
        after(PendingPodEvents.GRACE);
        assertThat(fixture.cluster.notes)
                .singleElement()
                .asString()
                .startsWith("a WaitingForGPU: 0/2 nodes fit: 2 no GPU with 40000 MiB free")
                .endsWith(" (of all nodes, whether or not kube-scheduler would take them)");
    }

    @Test
    void aPodPendingForAnotherReasonGetsNoEvent() {
        fixture.pending.markedUnschedulable(id("a"), Gpus.request("APP:main: gpumem=30000"));
        after(PendingPodEvents.GRACE);
        assertThat(fixture.cluster.notes).isEmpty();
    }

    @Test
    void aPodThatIsBoundSoonGetsNoEvent() {
        waits("a", 40_000);
        turn();
        turn();
        fixture.pending.forget(id("a").uid());
        for (int i = 0; i < 5; i++) {
            turn();
        }
        assertThat(fixture.cluster.notes).isEmpty();
    }

    @Test
    void aNewReasonIsReportedAfterTheMinimumInterval() {
        waits("a", 40_000);
        after(PendingPodEvents.GRACE);
        fixture.takenElsewhere("more", 1, 0, 10_000);
        fixture.takenElsewhere("more-2", 1, 1, 10_000);
        fixture.takenElsewhere("more-3", 2, 0, 10_000);
        fixture.takenElsewhere("more-4", 2, 1, 10_000);
        after(PendingPodEvents.MIN_INTERVAL.dividedBy(2));
        assertThat(fixture.cluster.notes).hasSize(1);

        after(PendingPodEvents.MIN_INTERVAL.dividedBy(2));

        assertThat(fixture.cluster.notes).hasSize(2).last().asString().contains("lacks 20000 MiB");
        after(PendingPodEvents.MIN_INTERVAL);
        assertThat(fixture.cluster.notes).as("the reason is the same").hasSize(2);
    }

    /** The API server deletes an event after an hour. */
    @Test
    void anUnchangedReasonIsReportedAgainAfterALongTime() {
        fixture.pending.markedUnschedulable(id("a"), Gpus.request("APP:main: gpumem=40000"));
        after(PendingPodEvents.GRACE);
        after(PendingPodEvents.REPEAT_AFTER.minusSeconds(10));
        assertThat(fixture.cluster.notes).hasSize(1);

        after(Duration.ofSeconds(10));

        assertThat(fixture.cluster.notes).hasSize(2).containsOnly(fixture.cluster.notes.get(0));
    }

    @Test
    void aFirstEventComesBeforeRepeatedEventsOfOtherPods() {
        for (int i = 0; i < 20; i++) {
            fixture.pending.markedUnschedulable(id("pod-" + i), Gpus.request("APP:main: gpumem=40000"));
        }
        fixture.pass(PendingPodEvents.GRACE);
        for (int i = 0; i < 20; i++) {
            turn();
        }
        assertThat(fixture.cluster.notes).hasSize(20);
        fixture.pass(PendingPodEvents.REPEAT_AFTER.minus(PendingPodEvents.GRACE));
        fixture.pending.markedUnschedulable(id("new"), Gpus.request("APP:main: gpumem=40000"));
        after(PendingPodEvents.GRACE);
        assertThat(fixture.cluster.notes).anySatisfy(note -> assertThat(note).startsWith("new "));
    }

    @Test
    void aPodThatFitsGetsNoEvent() {
        waits("a", 40_000);
        fixture.ledger.observeEnded(id("old-1-0").uid());
        after(PendingPodEvents.GRACE);
        assertThat(fixture.cluster.notes).isEmpty();
    }

    @Test
    void eventsOfManyPodsAreSentInTurnAtALimitedRate() {
        for (int i = 0; i < 20; i++) {
            waits("pod-" + i, 40_000 + i);
        }
        after(PendingPodEvents.GRACE);
        int before = fixture.cluster.notes.size();
        assertThat(before).isLessThanOrEqualTo(PendingPodEvents.MAX_EVENTS_PER_RUN);
        turn();
        assertThat(fixture.cluster.notes.size() - before).isLessThanOrEqualTo(PendingPodEvents.MAX_EVENTS_PER_RUN);
        for (int i = 0; i < 40; i++) {
            turn();
        }
        assertThat(fixture.cluster.notes).hasSize(20).doesNotHaveDuplicates();
    }

    @Test
    void aStandbySendsNoEvents() {
        waits("a", 40_000);
        fixture.cluster.stopLeading();
        after(PendingPodEvents.GRACE);
        after(PendingPodEvents.GRACE);
        assertThat(fixture.cluster.notes).isEmpty();
    }

    private void waits(String name, int memoryMiB) {
        assertThat(fixture.filter(name, mebibytes(memoryMiB), 0, "", "n1", "n2"))
                .isEmpty();
    }

    private void turn() {
        events.report();
        fixture.pass(Duration.ofSeconds(1));
    }

    private void after(Duration time) {
        events.report();
        fixture.pass(time);
        events.report();
    }
}
