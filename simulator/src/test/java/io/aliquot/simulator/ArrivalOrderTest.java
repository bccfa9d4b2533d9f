package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest;
import java.time.Instant;
import java.util.Comparator;
import java.util.List;
import java.util.TreeMap;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class ArrivalOrderTest {
    private static final Trace TRACE = new Trace(
            List.of(TestPods.node("n", new UniformGpus(8, "T4", 16_384, 10), 96_000, 1L << 38)),
            new TreeMap<>(),
            List.of());

    private static final TracePod EIGHT = pod("eight", new GpuRequest(8, new MemoryRequest.WholeCard(), 0, true));
    private static final TracePod HALF = pod("half", TestPods.mebibytes(8_192, 10));
    private static final List<TracePod> WORKLOAD = List.of(HALF, EIGHT);

    private static final List<TracePod> MANY = IntStream.range(0, 50)
            .mapToObj(i -> new TracePod("p" + i, HALF.request(), Instant.ofEpochSecond(i * 37 % 50), Instant.MAX))
            .toList();

    private static TracePod pod(String name, GpuRequest request) {
        return TestPods.pod(name, TestPods.request(request, 1_000, 1 << 30));
    }

    @Test
    void drawnAddsPodsToTheWorkloadWithoutExceedingTheCapacityToRequest() {
        List<TracePod> arrivals = ArrivalOrder.DRAWN.arrivals(TRACE, WORKLOAD, 30_000, 5);

        assertThat(arrivals).containsAll(WORKLOAD);
        assertThat(arrivals.stream().mapToLong(TRACE::requestedGpu).sum()).isBetween(30_000L - 8_000, 30_000L);
        assertThat(ArrivalOrder.DRAWN.arrivals(TRACE, WORKLOAD, 30_000, 5)).isEqualTo(arrivals);
        assertThat(ArrivalOrder.DRAWN.arrivals(TRACE, WORKLOAD, 30_000, 6)).isNotEqualTo(arrivals);
    }

    @Test
    void givenKeepsTheOrderOfCreation() {
        assertThat(ArrivalOrder.GIVEN.arrivals(TRACE, MANY, 0, 1))
                .containsExactlyInAnyOrderElementsOf(MANY)
                .isSortedAccordingTo(Comparator.comparing(TracePod::created));
    }

    @Test
    void shuffledKeepsAllPodsInAnOrderThatTheSeedDetermines() {
        List<TracePod> arrivals = ArrivalOrder.SHUFFLED.arrivals(TRACE, MANY, 0, 1);

        assertThat(arrivals).containsExactlyInAnyOrderElementsOf(MANY).isNotEqualTo(MANY);
        assertThat(ArrivalOrder.SHUFFLED.arrivals(TRACE, MANY, 0, 1)).isEqualTo(arrivals);
        assertThat(ArrivalOrder.SHUFFLED.arrivals(TRACE, MANY, 0, 2)).isNotEqualTo(arrivals);
    }
}
