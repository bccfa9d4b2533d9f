package io.aliquot.scheduler.extender;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.extender.Cluster.PodState;
import io.aliquot.scheduler.placement.Gpus;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import org.junit.jupiter.api.Test;

class AuditorTest {
    private final World world = new World();
    private final SimpleMeterRegistry metrics = new SimpleMeterRegistry();
    private final Auditor auditor = new Auditor(world.news, world.cluster, metrics);

    @Test
    void anOversoldGpuIsToldOfOnTheLatestPod() {
        world.cluster.state = new PodState.Bound(World.bound("a", 1, 1, 50_000));
        world.takenElsewhere("a", 1, 0, 50_000);
        world.takenElsewhere("b", 1, 0, 50_000);
        auditor.audit();
        auditor.audit();
        assertThat(world.cluster.warnings)
                .containsExactly("b GpuOversold: with this pod, " + Gpus.uuid(1, 0)
                        + " of node n1 is allocated beyond its capacity; delete this pod, or another one there");
        assertThat(metrics.counter("aliquot.ledger.oversold").count()).isEqualTo(1);
    }

    @Test
    void whatOnlyOldNewsMakesLookOversoldIsNot() {
        world.cluster.state = new PodState.Gone();
        world.takenElsewhere("a", 1, 0, 50_000);
        world.takenElsewhere("b", 1, 0, 50_000);
        auditor.audit();
        assertThat(world.cluster.warnings).isEmpty();
    }
}
