package io.aliquot.deviceplugin.monitoring;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Held;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.usage.NodeAllocation;
import io.aliquot.api.usage.NodeAllocation.Amount;
import io.aliquot.api.usage.PodContainer;
import io.prometheus.metrics.model.snapshots.GaugeSnapshot;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

final class AllocationMetricsTest {
    private static final String GPU = "GPU-11111111-2222-3333-4444-555555555555";
    private static final NodeAllocation ALLOCATION = new NodeAllocation(
            List.of(new NodeAllocation.OfGpu(
                    GPU, "NVIDIA A100", new Amount(80_000, 100, 10), new Amount(3_000, 30, 2), true)),
            List.of(
                    new NodeAllocation.Limit(
                            new PodContainer("a", "p", "u1", "main"),
                            GPU,
                            2_000,
                            30,
                            CorePolicy.FIXED,
                            Priority.NORMAL,
                            Held.SHARE),
                    new NodeAllocation.Limit(
                            new PodContainer("a", "q", "u2", "main"),
                            GPU,
                            1_000,
                            10,
                            CorePolicy.ELASTIC,
                            Priority.LOW,
                            Held.SHARE),
                    new NodeAllocation.Limit(
                            new PodContainer("a", "r", "u3", "main"),
                            GPU,
                            1_000,
                            50,
                            CorePolicy.NONE,
                            Priority.NORMAL,
                            Held.SHARE)),
            List.of(new NodeAllocation.OfPod("a", "p", 6_000, 60), new NodeAllocation.OfPod("a", "q", 1_000, 10)));

    private final AtomicLong now = new AtomicLong();
    private final AllocationMetrics metrics = new AllocationMetrics("n1", now::get);

    @Test
    void whatTheSchedulerSentIsShownForAMinute() {
        assertThat(metrics.collect().stream()).isEmpty();
        metrics.accept(ALLOCATION.print());

        assertThat(sum("aliquot_gpu_memory_bytes")).isEqualTo(80_000.0 * (1 << 20));
        assertThat(sum("aliquot_gpu_memory_free_bytes")).isEqualTo(77_000.0 * (1 << 20));
        assertThat(sum("aliquot_gpu_cores_free_ratio")).isEqualTo(0.7);
        assertThat(sum("aliquot_gpu_slots_allocated")).isEqualTo(2);
        assertThat(sum("aliquot_gpu_schedulable")).isEqualTo(1);
        assertThat(sum("aliquot_container_memory_limit_bytes")).isEqualTo(4_000.0 * (1 << 20));
        assertThat(sum("aliquot_container_gpu_share_ratio"))
                .as("two of three have a limit")
                .isEqualTo(0.4);
        assertThat(sum("aliquot_pod_memory_allocated_bytes"))
                .as("its init container, which has ended, held more")
                .isEqualTo(7_000.0 * (1 << 20));
        assertThat(sum("aliquot_pod_cores_allocated_ratio")).isEqualTo(0.7);
        assertThat(sum("aliquot_gpu_borrowers")).as("not the fixed one").isEqualTo(2);
        now.addAndGet(Duration.ofMinutes(1).toNanos() + 1);
        assertThat(metrics.collect().stream()).isEmpty();
    }

    @Test
    void aTextOfAnotherVersionChangesNothing() {
        metrics.accept(ALLOCATION.print());
        metrics.accept("{\"version\": 9}");
        metrics.accept("no JSON");

        assertThat(sum("aliquot_gpu_slots")).isEqualTo(10);
    }

    private double sum(String gauge) {
        return metrics.collect().stream()
                .filter(snapshot -> snapshot.getMetadata().getName().equals(gauge))
                .flatMap(snapshot -> ((GaugeSnapshot) snapshot).getDataPoints().stream())
                .mapToDouble(point -> point.getValue())
                .sum();
    }
}
