package io.aliquot.scheduler.extensionapi.objects;

import static io.aliquot.scheduler.extender.ExtenderFixture.id;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes.NodeMetadata;
import io.aliquot.scheduler.placement.Gpus;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** The cluster has two empty nodes with two GPUs each. */
class GpuNodesTest {
    private final ExtenderFixture fixture = new ExtenderFixture();
    private final GpuNodes nodes = new GpuNodes(fixture.ledger, fixture.pending, fixture.cluster, fixture.now::get);

    @Test
    void strandedMemoryFollowsThePodsOfTheClusterAlsoWhileNothingChangesOnTheNode() {
        nodes.put(new NodeMetadata("n1", "uid", 1, Instant.EPOCH, Map.of(), List.of()));
        fixture.takenElsewhere("a", 1, 0, 50_000);
        assertThat(stranded()).isEqualTo(30_000);

        fixture.pending.markedUnschedulable(id("b"), Gpus.request("APP:main: gpumem=20000"));
        fixture.now.addAndGet(Duration.ofSeconds(16).toNanos());

        assertThat(stranded()).isZero();
    }

    private long stranded() {
        nodes.refresh();
        return nodes.strandedMiB(nodes.nodeStore().find("n1").orElseThrow());
    }
}
