package io.aliquot.scheduler.extender;

import static io.aliquot.scheduler.extender.World.id;
import static io.aliquot.scheduler.extender.World.mebibytes;
import static io.aliquot.scheduler.extender.World.pod;
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
class WaitingCausesTest {
    private final World world = new World();
    private final WaitingCauses causes = new WaitingCauses(
            world.pending, new Explainer(world.ledger, new Budgets()), world.ledger, world.cluster);

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
        world.ledger.forget("uid-old-2-0");
        assertThat(causes.count()).containsEntry("memory", 1).containsEntry("elsewhere", 0);
    }

    @Test
    void ofSeveralReplicasOnlyTheLeaderCounts() {
        refused("a", 40_000);
        world.cluster.standing = new Cluster.Standing.Waits("another one holds the Lease");
        assertThat(causes.count())
                .containsEntry("memory", 0)
                .containsEntry("not-looked-at", 0)
                .containsKeys("closed", "impossible");
    }

    private void refused(String name, int memoryMiB) {
        world.pending.refused(id(name), Gpus.ask("APP:main: gpumem=" + memoryMiB));
    }
}
