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
class PendingCauseCountsTest {
    private final ExtenderFixture fixture = new ExtenderFixture();
    private final PendingCauseCounts causes = new PendingCauseCounts(
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
    void aPodThatKubeSchedulerNeverSendsIsCountedUntilItIsDeleted() {
        refused("a", 40_000);
        refused("b", 40_000);
        refused("c", 10_000);
        fixture.pass(Duration.ofHours(1));
        assertThat(causes.count()).containsEntry("memory", 2).containsEntry("elsewhere", 1);

        fixture.pending.forget("uid-a");
        assertThat(causes.count()).containsEntry("memory", 1);
    }

    @Test
    void aPodThatFilterAndKubeSchedulerRefusedIsCountedOnceForItsNodes() {
        fixture.filter("a", mebibytes(40_000), 0, "", "n1");
        refused("a", 40_000);
        fixture.ledger.observeEnded("uid-old-2-0");
        assertThat(causes.count()).containsEntry("memory", 1).containsEntry("elsewhere", 0);
    }

    @Test
    void onlyTheLeaderCountsPendingPods() {
        refused("a", 40_000);
        fixture.cluster.stopLeading();
        assertThat(causes.count())
                .containsEntry("memory", 0)
                .containsEntry("not-evaluated", 0)
                .containsKeys("closed", "impossible");
    }

    @Test
    void everyKindOfPodIsEvaluatedAtInfrequentScrapes() {
        for (int kind = 0; kind < 3 * PendingCauseCounts.MAX_EVALUATIONS; kind++) {
            refused("pod-" + kind, 40_000 + kind);
        }
        for (int scrape = 1; scrape <= 20; scrape++) {
            assertThat(causes.count())
                    .as("scrape " + scrape)
                    .containsEntry("memory", Math.min(scrape, 3) * PendingCauseCounts.MAX_EVALUATIONS)
                    .containsEntry("not-evaluated", Math.max(0, 3 - scrape) * PendingCauseCounts.MAX_EVALUATIONS);
            fixture.pass(Duration.ofMinutes(1));
        }
    }

    @Test
    void cachedCausesAreEvaluatedAgainInTurnAndExpire() {
        for (int kind = 0; kind < 2 * PendingCauseCounts.MAX_EVALUATIONS; kind++) {
            refused("pod-" + kind, 40_000 + kind);
        }
        causes.count();
        fixture.pass(Duration.ofMinutes(1));
        causes.count();
        fixture.ledger.observeEnded("uid-old-1-0");
        fixture.pass(Duration.ofMinutes(1));
        assertThat(causes.count())
                .as("the older half is evaluated")
                .containsEntry("elsewhere", PendingCauseCounts.MAX_EVALUATIONS)
                .containsEntry("memory", PendingCauseCounts.MAX_EVALUATIONS);

        fixture.pass(PendingCauseCounts.CACHED_FOR);
        assertThat(causes.count())
                .containsEntry("elsewhere", PendingCauseCounts.MAX_EVALUATIONS)
                .containsEntry("not-evaluated", PendingCauseCounts.MAX_EVALUATIONS);
    }

    private void refused(String name, int memoryMiB) {
        fixture.pending.markedUnschedulable(id(name), Gpus.request("APP:main: gpumem=" + memoryMiB));
    }
}
