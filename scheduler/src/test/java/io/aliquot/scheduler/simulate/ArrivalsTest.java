package io.aliquot.scheduler.simulate;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.GpuRequest;
import io.aliquot.api.MemoryRequest;
import io.aliquot.scheduler.placement.ContainerAsk;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.HostLoad;
import io.aliquot.scheduler.placement.PodAsk;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

class ArrivalsTest {
    private static final Trace TRACE = new Trace(
            List.of(Node.of("n", new Node.Gpus(8, "T4", 16_384, 10), new HostLoad(96_000, 1L << 38))), new TreeMap<>());

    private static final Pod EIGHT = pod("eight", new GpuRequest(8, new MemoryRequest.WholeCard(), 0, true));
    private static final Pod HALF = pod("half", new GpuRequest(1, new MemoryRequest.Mebibytes(8_192), 10, false));
    private static final List<Pod> WORKLOAD = List.of(HALF, EIGHT);

    private static Pod pod(String name, GpuRequest request) {
        var container = new ContainerAsk("main", ContainerKind.APP, request);
        return new Pod(
                name,
                PodAsk.of(List.of(container), Map.of(), false),
                new HostLoad(1_000, 1 << 30),
                Instant.EPOCH,
                Instant.MAX);
    }

    @Test
    void theWorkloadsPodsAllComeAndTheSurplusEndsBeforeItIsTooMuch() {
        List<Pod> arrivals = Arrivals.drawn(TRACE, WORKLOAD, 30_000, 5);

        assertThat(arrivals).containsAll(WORKLOAD);
        assertThat(arrivals.stream().mapToLong(TRACE::asked).sum()).isBetween(30_000L - 8_000, 30_000L);
        assertThat(Arrivals.drawn(TRACE, WORKLOAD, 30_000, 5)).isEqualTo(arrivals);
        assertThat(Arrivals.drawn(TRACE, WORKLOAD, 30_000, 6)).isNotEqualTo(arrivals);
    }
}
