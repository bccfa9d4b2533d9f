package io.aliquot.scheduler.explain;

import static io.aliquot.scheduler.extender.ExtenderFixture.id;
import static io.aliquot.scheduler.extender.ExtenderFixture.mebibytes;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.apiserver.Cluster;
import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.preemption.Budgets;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Nodes 1 and 2 have 30,000 MiB free on each GPU. */
class PendingPodEventsTest {
    private final ExtenderFixture world = new ExtenderFixture();
    private final PendingPodEvents events = new PendingPodEvents(
            world.pending,
            new Explainer(world.ledger, world.scoring, new Budgets()),
            world.ledger,
            world.cluster,
            world.now::get);

    @BeforeEach
    void fill() {
        for (int gpu : List.of(0, 1)) {
            world.takenElsewhere("old-1-" + gpu, 1, gpu, 50_000);
            world.takenElsewhere("old-2-" + gpu, 2, gpu, 50_000);
        }
    }

    @Test
    void aPendingPodGetsOneEventWithTheReason() {
        waits("a", 40_000);
        for (int i = 0; i < 10; i++) {
            turn();
        }

        assertThat(world.cluster.notes)
                .singleElement()
                .asString()
                .startsWith("a WaitingForGPU: 0/2 nodes fit")
                .contains("no GPU with 40000 MiB free", "lacks 10000 MiB");
    }

    @Test
    void aPodThatKubeSchedulerNeverSendsGetsAnEventAboutAllNodes() {
        world.pending.markedUnschedulable(id("a"), Gpus.ask("APP:main: gpumem=40000"));
        after(PendingPodEvents.GRACE);
        assertThat(world.cluster.notes)
                .singleElement()
                .asString()
                .startsWith("a WaitingForGPU: 0/2 nodes fit: 2 no GPU with 40000 MiB free")
                .endsWith(" (of all nodes, whether or not kube-scheduler would take them)");
    }

    @Test
    void aPodPendingForAnotherReasonGetsNoEvent() {
        world.pending.markedUnschedulable(id("a"), Gpus.ask("APP:main: gpumem=30000"));
        after(PendingPodEvents.GRACE);
        assertThat(world.cluster.notes).isEmpty();
    }

    @Test
    void aPodThatIsBoundSoonGetsNoEvent() {
        waits("a", 40_000);
        turn();
        turn();
        world.pending.forget(id("a").uid());
        for (int i = 0; i < 5; i++) {
            turn();
        }
        assertThat(world.cluster.notes).isEmpty();
    }

    @Test
    void aNewReasonIsReportedAfterTheMinimumInterval() {
        waits("a", 40_000);
        after(PendingPodEvents.GRACE);
        world.takenElsewhere("more", 1, 0, 10_000);
        world.takenElsewhere("more-2", 1, 1, 10_000);
        world.takenElsewhere("more-3", 2, 0, 10_000);
        world.takenElsewhere("more-4", 2, 1, 10_000);
        after(PendingPodEvents.MIN_INTERVAL.dividedBy(2));
        assertThat(world.cluster.notes).hasSize(1);

        after(PendingPodEvents.MIN_INTERVAL.dividedBy(2));

        assertThat(world.cluster.notes).hasSize(2).last().asString().contains("lacks 20000 MiB");
        after(PendingPodEvents.MIN_INTERVAL);
        assertThat(world.cluster.notes).as("the reason is the same").hasSize(2);
    }

    /** The API server deletes an event after an hour. */
    @Test
    void anUnchangedReasonIsReportedAgainAfterALongTime() {
        world.pending.markedUnschedulable(id("a"), Gpus.ask("APP:main: gpumem=40000"));
        after(PendingPodEvents.GRACE);
        after(PendingPodEvents.REPEAT_AFTER.minusSeconds(10));
        assertThat(world.cluster.notes).hasSize(1);

        after(Duration.ofSeconds(10));

        assertThat(world.cluster.notes).hasSize(2).containsOnly(world.cluster.notes.get(0));
    }

    @Test
    void aFirstEventComesBeforeRepeatedEventsOfOtherPods() {
        for (int i = 0; i < 20; i++) {
            world.pending.markedUnschedulable(id("pod-" + i), Gpus.ask("APP:main: gpumem=40000"));
        }
        world.pass(PendingPodEvents.GRACE);
        for (int i = 0; i < 20; i++) {
            turn();
        }
        assertThat(world.cluster.notes).hasSize(20);
        world.pass(PendingPodEvents.REPEAT_AFTER.minus(PendingPodEvents.GRACE));
        world.pending.markedUnschedulable(id("new"), Gpus.ask("APP:main: gpumem=40000"));
        after(PendingPodEvents.GRACE);
        assertThat(world.cluster.notes).anySatisfy(note -> assertThat(note).startsWith("new "));
    }

    @Test
    void aPodThatFitsGetsNoEvent() {
        waits("a", 40_000);
        world.ledger.observeEnded(id("old-1-0").uid());
        after(PendingPodEvents.GRACE);
        assertThat(world.cluster.notes).isEmpty();
    }

    @Test
    void eventsOfManyPodsAreSentInTurnAtALimitedRate() {
        for (int i = 0; i < 20; i++) {
            waits("pod-" + i, 40_000 + i);
        }
        after(PendingPodEvents.GRACE);
        int before = world.cluster.notes.size();
        assertThat(before).isLessThanOrEqualTo(PendingPodEvents.MAX_EVENTS_PER_RUN);
        turn();
        assertThat(world.cluster.notes.size() - before).isLessThanOrEqualTo(PendingPodEvents.MAX_EVENTS_PER_RUN);
        for (int i = 0; i < 40; i++) {
            turn();
        }
        assertThat(world.cluster.notes).hasSize(20).doesNotHaveDuplicates();
    }

    @Test
    void aStandbySendsNoEvents() {
        waits("a", 40_000);
        world.cluster.leaderStatus = new Cluster.LeaderStatus.NotLeading("another one holds the Lease");
        after(PendingPodEvents.GRACE);
        after(PendingPodEvents.GRACE);
        assertThat(world.cluster.notes).isEmpty();
    }

    private void waits(String name, int memoryMiB) {
        assertThat(world.filter(name, mebibytes(memoryMiB), 0, "", "n1", "n2")).isEmpty();
    }

    private void turn() {
        events.report();
        world.pass(Duration.ofSeconds(1));
    }

    private void after(Duration time) {
        events.report();
        world.pass(time);
        events.report();
    }
}
