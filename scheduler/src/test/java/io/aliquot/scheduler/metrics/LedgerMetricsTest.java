package io.aliquot.scheduler.metrics;

import static io.aliquot.scheduler.extender.ExtenderFixture.id;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.extender.ExtenderFixture;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.Quota;
import io.aliquot.scheduler.ledger.QuotaResource;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.prometheus.metrics.model.snapshots.GaugeSnapshot;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** The cluster has two empty nodes with two GPUs each. */
class LedgerMetricsTest {
    private final ExtenderFixture fixture = new ExtenderFixture();
    private final LedgerMetrics metrics = new LedgerMetrics(fixture.ledger, fixture.pending, Map::of);

    @Test
    void anEmptyGpuIsNotStrandedWhileAPendingPodRequestsMoreWholeCardsThanANodeHas() {
        fixture.pending.markedUnschedulable(id("a"), Gpus.request("APP:main: gpu=3"));
        assertThat(sum("aliquot_node_gpu_memory_stranded_bytes")).isZero();
    }

    @Test
    void aSmallerGpuIsNotStrandedWhileALargerWholeCardIsAllocated() {
        ExtenderFixture.node(fixture.ledger, 2, Gpus.gpu(2, 0, ExtenderFixture.MEMORY / 2));
        var all = new GpuAmount(ExtenderFixture.MEMORY, 0, 1, true);
        fixture.ledger.observeBound(BoundPods.of(id("a"), "n1", 1, BoundPods.main(Gpus.uuid(1, 0), all)));
        assertThat(sum("aliquot_node_gpu_memory_stranded_bytes")).isZero();
    }

    @Test
    void freeMemoryBelowTheRequestedPercentageIsStranded() {
        fixture.takenElsewhere("a", 1, 0, 50_000);
        fixture.pending.markedUnschedulable(id("b"), Gpus.request("APP:main: gpumem-percentage=50"));
        assertThat(sum("aliquot_node_gpu_memory_stranded_bytes")).isEqualTo(30_000.0 * (1 << 20));
    }

    @Test
    void aQuotaAndWhatIsUsedOfItAreShown() {
        fixture.ledger.putQuota(new Quota("default", "gpus", "uid", Map.of(QuotaResource.MEMORY, 2000L), List.of()));
        fixture.takenElsewhere("a", 1, 0, 1500);
        assertThat(sum("aliquot_quota_memory_bytes")).isEqualTo(2000.0 * (1 << 20));
        assertThat(sum("aliquot_quota_memory_bytes_used")).isEqualTo(1500.0 * (1 << 20));
        assertThat(sum("aliquot_quota_vgpus_used")).as("not limited").isZero();
    }

    /** Series by GPU and by container ended silently at 2,000 GPUs; the node agents have them now. */
    @Test
    void noSeriesIsOfAGpuOrAContainer() {
        fixture.takenElsewhere("a", 1, 0, 1_000);

        assertThat(metrics.collect().stream().flatMap(snapshot -> ((GaugeSnapshot) snapshot).getDataPoints().stream()))
                .isNotEmpty()
                .noneMatch(point ->
                        point.getLabels().contains("gpu") || point.getLabels().contains("container"));
    }

    private double sum(String gauge) {
        return metrics.collect().stream()
                .filter(snapshot -> snapshot.getMetadata().getName().equals(gauge))
                .flatMap(snapshot -> ((GaugeSnapshot) snapshot).getDataPoints().stream())
                .mapToDouble(point -> point.getValue())
                .sum();
    }
}
