package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;

import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.scheduler.simulation.PodRequest;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class ArrivalProcessTest {
    /** Nine of ten pods live 1 s and one lives 91 s: 10 s on average. */
    private static final List<TracePod> WORKLOAD =
            IntStream.range(0, 10).mapToObj(i -> pod(i == 0 ? 91 : 1)).toList();

    private static final Trace TRACE = new Trace(
            IntStream.range(0, 250)
                    .mapToObj(i -> TestPods.node("n" + i, new UniformGpus(8, "T4", 16_384, 10), 0, 0))
                    .toList(),
            new TreeMap<>(Map.of(ArrivalProcess.LIFETIMES, WORKLOAD)),
            List.of());

    private static TracePod pod(long seconds) {
        PodRequest request = TestPods.request(new GpuRequest(1, new MemoryRequest.Percentage(50), 0, false), 0, 0);
        return new TracePod("p", request, Instant.EPOCH, seconds < 0 ? Instant.MAX : Instant.ofEpochSecond(seconds));
    }

    /** GPU that the pods hold at a time if all are placed, in percent. */
    private static double held(List<ArrivalProcess.Arrival> arrivals, double at) {
        long requested = arrivals.stream()
                .filter(arrival -> arrival.at() <= at && at < arrival.at() + arrival.lifetime())
                .mapToLong(arrival -> TRACE.requestedGpu(arrival.pod()))
                .sum();
        return 100.0 * requested / TRACE.capacity();
    }

    @Test
    void theLoadAtTheStartEqualsTheLoadLater() {
        var process = new ArrivalProcess(TRACE, WORKLOAD, 130, 7);
        List<ArrivalProcess.Arrival> arrivals = Stream.concat(
                        process.initialPods().stream(),
                        Stream.generate(process::next).limit(50_000))
                .toList();

        assertThat(arrivals.get(arrivals.size() - 1).at()).isGreaterThan(60);
        for (double at : new double[] {0, 5, 20, 60}) {
            assertThat(held(arrivals, at)).as("at %s s", at).isCloseTo(130, within(10.0));
        }
    }

    @Test
    void equalSeedsGiveEqualPods() {
        assertThat(new ArrivalProcess(TRACE, WORKLOAD, 130, 1).initialPods())
                .isEqualTo(new ArrivalProcess(TRACE, WORKLOAD, 130, 1).initialPods())
                .isNotEqualTo(new ArrivalProcess(TRACE, WORKLOAD, 130, 2).initialPods());
    }

    @Test
    void aWorkloadWithoutLifetimesUsesThoseOfTheDefaultWorkload() {
        assertThat(new ArrivalProcess(TRACE, List.of(pod(-1)), 130, 1).meanLifetime())
                .isEqualTo(10);

        var none = new Trace(TRACE.nodes(), new TreeMap<>(), List.of());
        assertThatThrownBy(() -> new ArrivalProcess(none, List.of(pod(-1)), 130, 1))
                .isInstanceOf(TraceException.class)
                .hasMessageContaining("leave out --departures");
    }
}
