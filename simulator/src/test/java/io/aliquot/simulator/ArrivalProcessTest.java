package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;

import io.aliquot.api.GpuRequest;
import io.aliquot.api.MemoryRequest;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class ArrivalProcessTest {
    /** Nine in ten live 1 s, one lives 91 s: 10 s in the mean. */
    private static final List<TracePod> WORKLOAD =
            IntStream.range(0, 10).mapToObj(i -> pod(i == 0 ? 91 : 1)).toList();

    private static final Trace TRACE = new Trace(
            IntStream.range(0, 250)
                    .mapToObj(i -> Node.of("n" + i, new Node.Gpus(8, "T4", 16_384, 10), HostResources.NONE))
                    .toList(),
            new TreeMap<>(Map.of(ArrivalProcess.LIFETIMES, WORKLOAD)),
            List.of());

    private static TracePod pod(long seconds) {
        var container = new ContainerGpuRequest(
                "main", ContainerKind.APP, new GpuRequest(1, new MemoryRequest.Percentage(50), 0, false));
        return new TracePod(
                "p",
                PodGpuRequest.of(List.of(container), Map.of(), false),
                HostResources.NONE,
                Instant.EPOCH,
                seconds < 0 ? Instant.MAX : Instant.ofEpochSecond(seconds));
    }

    /** GPU that would be held at a time if all found a place, in percent. */
    private static double held(List<ArrivalProcess.Arrival> arrivals, double at) {
        long asked = arrivals.stream()
                .filter(arrival -> arrival.at() <= at && at < arrival.at() + arrival.lifetime())
                .mapToLong(arrival -> TRACE.asked(arrival.pod()))
                .sum();
        return 100.0 * asked / TRACE.capacity();
    }

    @Test
    void asMuchIsOfferedAtTheStartAsLater() {
        var traffic = new ArrivalProcess(TRACE, WORKLOAD, 130, 7);
        List<ArrivalProcess.Arrival> arrivals = Stream.concat(
                        traffic.start().stream(), Stream.generate(traffic::next).limit(50_000))
                .toList();

        assertThat(arrivals.get(arrivals.size() - 1).at()).isGreaterThan(60);
        for (double at : new double[] {0, 5, 20, 60}) {
            assertThat(held(arrivals, at)).as("at %s s", at).isCloseTo(130, within(10.0));
        }
    }

    @Test
    void equalSeedsGiveEqualTraffic() {
        assertThat(new ArrivalProcess(TRACE, WORKLOAD, 130, 1).start())
                .isEqualTo(new ArrivalProcess(TRACE, WORKLOAD, 130, 1).start())
                .isNotEqualTo(new ArrivalProcess(TRACE, WORKLOAD, 130, 2).start());
    }

    @Test
    void aWorkloadWithoutLifetimesTakesThoseOfDefault() {
        assertThat(new ArrivalProcess(TRACE, List.of(pod(-1)), 130, 1).meanLifetime()).isEqualTo(10);

        var none = new Trace(TRACE.nodes(), new TreeMap<>(), List.of());
        assertThatThrownBy(() -> new ArrivalProcess(none, List.of(pod(-1)), 130, 1))
                .isInstanceOf(TraceException.class)
                .hasMessageContaining("leave out --departures");
    }
}
