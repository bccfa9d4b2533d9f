package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.GpuRequest;
import io.aliquot.api.MemoryRequest;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

class TraceTest {
    /** GPUs of 30,000 MiB in the mean. */
    private static final Trace TRACE = new Trace(
            List.of(
                    Node.of("small", new Node.Gpus(2, "T4", 20_000, 10), HostResources.NONE),
                    Node.of("large", new Node.Gpus(2, "A100", 40_000, 10), HostResources.NONE)),
            new TreeMap<>(),
            List.of());

    private static final ContainerGpuRequest WHOLE = asks(ContainerKind.APP, new MemoryRequest.WholeCard(), 0, true);
    private static final ContainerGpuRequest THIRD =
            asks(ContainerKind.APP, new MemoryRequest.Mebibytes(10_000), 5, false);
    private static final ContainerGpuRequest CORES =
            asks(ContainerKind.APP, new MemoryRequest.Percentage(10), 40, false);
    private static final ContainerGpuRequest INIT =
            asks(ContainerKind.INIT, new MemoryRequest.Percentage(50), 0, false);

    private static ContainerGpuRequest asks(ContainerKind kind, MemoryRequest memory, int cores, boolean exclusive) {
        return new ContainerGpuRequest("c", kind, new GpuRequest(1, memory, cores, exclusive));
    }

    private static long asked(ContainerGpuRequest... containers) {
        PodGpuRequest ask = PodGpuRequest.of(Arrays.asList(containers), Map.of(), false);
        return TRACE.asked(new TracePod("p", ask, HostResources.NONE, Instant.EPOCH, Instant.MAX));
    }

    @Test
    void aShareCountsByMemoryOrCoresWhicheverIsMore() {
        assertThat(asked(THIRD)).isEqualTo(333);
        assertThat(asked(CORES)).isEqualTo(400);
        assertThat(asked(WHOLE)).isEqualTo(1000);
        assertThat(asked(THIRD, CORES)).isEqualTo(733);
        assertThat(asked()).isZero();
    }

    @Test
    void whatAnInitContainerAsksForOthersUseAfterIt() {
        assertThat(asked(INIT, THIRD)).isEqualTo(500);
        assertThat(asked(INIT, THIRD, CORES)).isEqualTo(733);
    }

    @Test
    void memoryThatNoCardHasCountsAsAWholeOne() {
        assertThat(asked(asks(ContainerKind.APP, new MemoryRequest.Mebibytes(50_000), 0, false)))
                .isEqualTo(1000);
    }
}
