package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.GpuRequest;
import io.aliquot.api.MemoryRequest;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.time.Instant;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class ArrivalOrderTest {
    private static final Trace TRACE = new Trace(
            List.of(Node.of("n", new Node.Gpus(8, "T4", 16_384, 10), new HostResources(96_000, 1L << 38))),
            new TreeMap<>(),
            List.of());

    private static final TracePod EIGHT = pod("eight", new GpuRequest(8, new MemoryRequest.WholeCard(), 0, true));
    private static final TracePod HALF = pod("half", new GpuRequest(1, new MemoryRequest.Mebibytes(8_192), 10, false));
    private static final List<TracePod> WORKLOAD = List.of(HALF, EIGHT);

    private static final List<TracePod> MANY = IntStream.range(0, 50)
            .mapToObj(
                    i -> new TracePod("p" + i, HALF.ask(), HALF.requests(), Instant.ofEpochSecond(i * 37 % 50), Instant.MAX))
            .toList();

    private static TracePod pod(String name, GpuRequest request) {
        var container = new ContainerGpuRequest("main", ContainerKind.APP, request);
        return new TracePod(
                name,
                PodGpuRequest.of(List.of(container), Map.of(), false),
                new HostResources(1_000, 1 << 30),
                Instant.EPOCH,
                Instant.MAX);
    }

    @Test
    void theWorkloadsPodsAllComeAndTheSurplusEndsBeforeItIsTooMuch() {
        List<TracePod> arrivals = ArrivalOrder.DRAWN.of(TRACE, WORKLOAD, 30_000, 5);

        assertThat(arrivals).containsAll(WORKLOAD);
        assertThat(arrivals.stream().mapToLong(TRACE::asked).sum()).isBetween(30_000L - 8_000, 30_000L);
        assertThat(ArrivalOrder.DRAWN.of(TRACE, WORKLOAD, 30_000, 5)).isEqualTo(arrivals);
        assertThat(ArrivalOrder.DRAWN.of(TRACE, WORKLOAD, 30_000, 6)).isNotEqualTo(arrivals);
    }

    @Test
    void asGivenThePodsComeInTheOrderOfTheirCreation() {
        assertThat(ArrivalOrder.GIVEN.of(TRACE, MANY, 0, 1))
                .containsExactlyInAnyOrderElementsOf(MANY)
                .isSortedAccordingTo(Comparator.comparing(TracePod::created));
    }

    @Test
    void shuffledTheyAllComeInAnOrderThatTheSeedDecides() {
        List<TracePod> arrivals = ArrivalOrder.SHUFFLED.of(TRACE, MANY, 0, 1);

        assertThat(arrivals).containsExactlyInAnyOrderElementsOf(MANY).isNotEqualTo(MANY);
        assertThat(ArrivalOrder.SHUFFLED.of(TRACE, MANY, 0, 1)).isEqualTo(arrivals);
        assertThat(ArrivalOrder.SHUFFLED.of(TRACE, MANY, 0, 2)).isNotEqualTo(arrivals);
    }
}
