package io.aliquot.scheduler.extender;

import static io.aliquot.scheduler.extender.ExtenderFixture.id;
import static io.aliquot.scheduler.extender.ExtenderFixture.mebibytes;
import static io.aliquot.scheduler.extender.ExtenderFixture.pod;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Placement;
import io.aliquot.scheduler.explain.Explainer;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.preemption.Budgets;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Node 1 and 2 have 30,000 MiB free on each GPU. */
class PendingCauseCountsTest {
    private final ExtenderFixture world = new ExtenderFixture();
    private final PendingCauseCounts causes = new PendingCauseCounts(
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
    void aPodThatKubeSchedulerNeverSendsIsCountedUntilItIsForgotten() {
        refused("a", 40_000);
        refused("b", 40_000);
        refused("c", 10_000);
        world.pass(Duration.ofHours(1));
        assertThat(causes.count()).containsEntry("memory", 2).containsEntry("elsewhere", 1);

        world.pending.forget("uid-a");
        assertThat(causes.count()).containsEntry("memory", 1);
    }

    @Test
    void aPodThatBothHaveRefusedIsCountedOnceByWhatItMayHave() {
        world.placing(Placement.BINPACK, 0).filter(pod("a", mebibytes(40_000)), List.of("n1"));
        refused("a", 40_000);
        world.ledger.observeEnded("uid-old-2-0");
        assertThat(causes.count()).containsEntry("memory", 1).containsEntry("elsewhere", 0);
    }

    @Test
    void ofSeveralReplicasOnlyTheLeaderCounts() {
        refused("a", 40_000);
        world.cluster.standing = new Cluster.LeaderStatus.Waits("another one holds the Lease");
        assertThat(causes.count())
                .containsEntry("memory", 0)
                .containsEntry("not-looked-at", 0)
                .containsKeys("closed", "impossible");
    }

    @Test
    void everyKindGetsItsTurnHoweverSeldomSomebodyAsks() {
        for (int kind = 0; kind < 3 * PendingCauseCounts.LOOKS; kind++) {
            refused("pod-" + kind, 40_000 + kind);
        }
        for (int scrape = 1; scrape <= 20; scrape++) {
            assertThat(causes.count())
                    .as("scrape " + scrape)
                    .containsEntry("memory", Math.min(scrape, 3) * PendingCauseCounts.LOOKS)
                    .containsEntry("not-looked-at", Math.max(0, 3 - scrape) * PendingCauseCounts.LOOKS);
            world.pass(Duration.ofMinutes(1));
        }
    }

    @Test
    void whatIsKnownIsLookedAtAnewByAndByAndForgottenIfItIsNot() {
        for (int kind = 0; kind < 2 * PendingCauseCounts.LOOKS; kind++) {
            refused("pod-" + kind, 40_000 + kind);
        }
        causes.count();
        world.pass(Duration.ofMinutes(1));
        causes.count();
        world.ledger.observeEnded("uid-old-1-0");
        world.pass(Duration.ofMinutes(1));
        assertThat(causes.count())
                .as("the older half is looked at")
                .containsEntry("elsewhere", PendingCauseCounts.LOOKS)
                .containsEntry("memory", PendingCauseCounts.LOOKS);

        world.pass(PendingCauseCounts.KNOWN_FOR);
        assertThat(causes.count())
                .containsEntry("elsewhere", PendingCauseCounts.LOOKS)
                .containsEntry("not-looked-at", PendingCauseCounts.LOOKS);
    }

    private void refused(String name, int memoryMiB) {
        world.pending.refused(id(name), Gpus.ask("APP:main: gpumem=" + memoryMiB));
    }
}
