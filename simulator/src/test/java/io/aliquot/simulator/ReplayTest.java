package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Annotations;
import io.aliquot.api.GpuRequest;
import io.aliquot.api.MemoryRequest;
import io.aliquot.api.MemoryRequest.Mebibytes;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.simulator.Replay.Placed;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

class ReplayTest {
    private static final List<Node> NODES = List.of(
            node("small-0", 8_000, 32, 1, "S"),
            node("small-1", 8_000, 32, 1, "S"),
            node("large-0", 96_000, 384, 8, "L"),
            node("large-1", 96_000, 384, 8, "L"));
    private static final TracePod HALF = pod("half", 4_000, 8, request(1, 500), Map.of());
    private static final TracePod WHOLE = pod("whole", 4_000, 8, request(1, Trace.WHOLE), Map.of());
    private static final TracePod EIGHT = pod("eight", 8_000, 8, request(8, Trace.WHOLE), Map.of());
    private static final TracePod CPU = pod("cpu", 8_000, 1, Optional.empty(), Map.of());
    private static final TracePod OF_MODEL_L =
            pod("large", 1_000, 1, request(1, 300), Map.of(Annotations.USE_GPU_MODEL, "L"));
    private static final List<TracePod> ALL = List.of(HALF, WHOLE, EIGHT, CPU, OF_MODEL_L);

    private static Node node(String name, int cpuMillis, int gibibytes, int gpus, String model) {
        return Node.of(
                name,
                new Node.Gpus(gpus, model, Trace.WHOLE, 100),
                new HostResources(cpuMillis, (long) gibibytes << 30));
    }

    private static Optional<GpuRequest> request(int gpus, int part) {
        return Optional.of(
                part < Trace.WHOLE
                        ? new GpuRequest(gpus, new MemoryRequest.Mebibytes(part), 0, false)
                        : new GpuRequest(gpus, new MemoryRequest.WholeCard(), 0, true));
    }

    private static TracePod pod(
            String name, int cpuMillis, int gibibytes, Optional<GpuRequest> request, Map<String, String> annotations) {
        PodGpuRequest ask = PodGpuRequest.of(
                request.map(one -> new ContainerGpuRequest("main", ContainerKind.APP, one)).stream()
                        .toList(),
                annotations,
                false);
        return new TracePod(name, ask, new HostResources(cpuMillis, (long) gibibytes << 30), Instant.EPOCH, Instant.MAX);
    }

    @ParameterizedTest
    @EnumSource
    void neverMoreThanThereIsAndNobodyIsRefusedForWhomThereIsRoom(Policy contender) {
        for (long seed = 0; seed < 20; seed++) {
            var replay = new Replay(NODES, contender, ALL, seed);
            var random = new Random(seed);
            List<Placed> placed = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                TracePod pod = ALL.get(random.nextInt(ALL.size()));
                boolean room =
                        replay.nodes().stream().anyMatch(node -> node.room().fits(replay.demand(pod)));
                Optional<Placed> one = replay.offer(pod);
                assertThat(one.isPresent()).as("seed %d, pod %d", seed, i).isEqualTo(room);
                one.ifPresent(placed::add);
                if (random.nextInt(4) == 0 && !placed.isEmpty()) {
                    replay.end(placed.remove(random.nextInt(placed.size())));
                }
                assertThat(replay.rooms())
                        .allSatisfy(node -> assertThat(node.cpuMillis()).isNotNegative())
                        .allSatisfy(node -> assertThat(node.memoryMiB()).isNotNegative());
                assertThat(replay.nodes().stream().mapToInt(Replay.Alike::nodes).sum())
                        .isEqualTo(NODES.size());
                assertThat(replay.rooms().stream().mapToInt(FreeCapacity::free).sum())
                        .isEqualTo(18_000 - replay.allocated());
            }
            placed.forEach(replay::end);
            assertThat(replay.allocated()).isZero();
            assertThat(replay.rooms()).isEqualTo(new Replay(NODES, contender, ALL, seed).rooms());
        }
    }

    @ParameterizedTest
    @EnumSource
    void equalInputsGiveEqualPlacements(Policy contender) {
        assertThat(placed(contender)).isEqualTo(placed(contender));
    }

    private static List<Optional<Placed>> placed(Policy contender) {
        var replay = new Replay(NODES, contender, ALL, 1);
        List<Optional<Placed>> placed = new ArrayList<>();
        for (int i = 0; i < 30; i++) {
            placed.add(replay.offer(ALL.get(i * 7 % ALL.size())));
        }
        return placed;
    }

    @Test
    void aPodThatTakesOneModelGoesToNoOther() {
        var replay = new Replay(NODES.subList(0, 1), Policy.BEST_FIT, ALL, 0);

        assertThat(replay.offer(OF_MODEL_L)).isEmpty();
        assertThat(replay.offer(HALF)).map(Placed::node).contains("small-0");
    }

    @Test
    void binpackFillsANodeAndSpreadTakesTheEmptiest() {
        var binpack = new Replay(NODES, Policy.BINPACK, ALL, 0);
        var spread = new Replay(NODES, Policy.SPREAD, ALL, 0);

        assertThat(List.of(binpack.offer(HALF), binpack.offer(HALF)))
                .extracting(placed -> placed.orElseThrow().node())
                .containsExactly("small-0", "small-0");
        assertThat(List.of(spread.offer(HALF), spread.offer(HALF)))
                .extracting(placed -> placed.orElseThrow().node())
                .containsExactly("large-0", "large-1");
    }

    @Test
    void whatBelongsToANodeIsRequestedThereAndCountsForItsFullness() {
        Node other = NODES.get(1);
        var busy = new Node("zz", other.facts(), new HostResources(4_000, 8L << 30));
        var replay = new Replay(List.of(other, busy), Policy.BINPACK, ALL, 0);

        // The fuller one, although by its name it comes last; then its CPU is out.
        assertThat(replay.offer(HALF)).map(Placed::node).contains("zz");
        assertThat(replay.offer(HALF)).map(Placed::node).contains("small-1");
    }

    @Test
    void whatPodsHoldIsToldByGpu() {
        var replay = new Replay(NODES.subList(1, 3), Policy.SPREAD, ALL, 0);
        replay.offer(HALF);
        replay.offer(EIGHT);
        replay.offer(OF_MODEL_L);

        assertThat(replay.held())
                .map(node -> node.stream().map(gpu -> gpu.memoryMiB()).toList())
                .containsExactly(List.of(0L), List.of(500L, 300L, 0L, 0L, 0L, 0L, 0L, 0L));
    }

    /** As kube-scheduler doesn't ask about them. */
    @ParameterizedTest
    @MethodSource("greedy")
    void whoeverFindsNotAsMuchOnAnyNodeIsNotLearntFrom(TracePod greedy) {
        List<TracePod> pods = List.of(HALF, WHOLE, HALF, OF_MODEL_L, WHOLE, HALF, EIGHT, HALF);
        var with = new Replay(NODES, Policy.FRAGMENTATION, ALL, 0);
        var without = new Replay(NODES, Policy.FRAGMENTATION, ALL, 0);

        for (int i = 0; i < 50; i++) {
            assertThat(with.offer(greedy)).isEmpty();
        }
        assertThat(pods.stream().map(with::offer).map(ReplayTest::where).toList())
                .isEqualTo(
                        pods.stream().map(without::offer).map(ReplayTest::where).toList());
    }

    private static Stream<TracePod> greedy() {
        return Stream.of(
                pod("cpu", 1_000_000, 8, request(1, 100), Map.of()),
                pod("vgpus", 1, 1, Optional.of(new GpuRequest(801, new Mebibytes(100), 0, false)), Map.of()),
                pod("memory", 1, 1, Optional.of(new GpuRequest(1, new Mebibytes(8_001), 0, false)), Map.of()));
    }

    /** Once for all vGPUs of a container, and of containers that don't run at one time for the one that asks for more. */
    @Test
    void kubeSchedulerCountsWhatIsWritten() {
        var first = new ContainerGpuRequest(
                "first", ContainerKind.INIT, new GpuRequest(1, new MemoryRequest.Percentage(70), 80, false));
        var proxy = new ContainerGpuRequest(
                "proxy", ContainerKind.SIDECAR, new GpuRequest(1, new Mebibytes(100), 0, false));
        var second =
                new ContainerGpuRequest("second", ContainerKind.INIT, new GpuRequest(1, new Mebibytes(600), 10, false));
        var main = new ContainerGpuRequest("main", ContainerKind.APP, new GpuRequest(2, new Mebibytes(500), 60, false));
        var whole = new ContainerGpuRequest(
                "whole", ContainerKind.APP, new GpuRequest(1, new MemoryRequest.WholeCard(), 0, true));
        var load = new HostResources(1, 2);

        assertThat(ResourceVector.of(PodGpuRequest.of(List.of(first, proxy, second, main, whole), Map.of(), false)
                        .requesting(load)))
                .isEqualTo(new ResourceVector(load, 4, 700, 70, 80));
        assertThat(ResourceVector.of(NODES.get(2)))
                .isEqualTo(new ResourceVector(NODES.get(2).facts().allocatable(), 800, 8000, 800, 800));
    }

    private static String where(Optional<Placed> placed) {
        return placed.map(one -> one.node() + one.gpus()).orElse("nowhere");
    }

    @Test
    void theWorkloadsPodsAllComeAndTheSurplusEndsBeforeItIsTooMuch() {
        var trace = new Trace(NODES, new TreeMap<>(Map.of("all", ALL)), List.of());
        List<TracePod> arrivals = ArrivalOrder.DRAWN.of(trace, ALL, 30_000, 5);

        assertThat(arrivals).containsAll(ALL);
        assertThat(arrivals.stream().mapToLong(trace::asked).sum()).isBetween(30_000L - 8_000, 30_000L);
        assertThat(ArrivalOrder.DRAWN.of(trace, ALL, 30_000, 5)).isEqualTo(arrivals);
        assertThat(ArrivalOrder.DRAWN.of(trace, ALL, 30_000, 6)).isNotEqualTo(arrivals);
    }

    @Test
    void fragmentationIsTheFreeGpuThatTypicalPodsCannotUse() {
        var replay = new Replay(NODES.subList(2, 3), Policy.BINPACK, ALL, 0);
        replay.offer(HALF);
        FreeCapacity node = replay.rooms().get(0); // 7.5 GPUs and 92 CPUs left

        assertThat(fragmentation(replay, node, HALF)).isEqualTo(0);
        assertThat(fragmentation(replay, node, WHOLE)).isEqualTo(500);
        assertThat(fragmentation(replay, node, EIGHT)).isEqualTo(7_500);
        assertThat(fragmentation(replay, node, CPU)).isEqualTo(7_500);
        assertThat(fragmentation(replay, node, HALF, EIGHT)).isEqualTo(3_750);
    }

    private static double fragmentation(Replay replay, FreeCapacity node, TracePod... pods) {
        return TypicalPods.of(List.of(pods).stream().map(replay::demand).toList())
                .fragmentation(node);
    }
}
