package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.api.pods.MemoryRequest.Mebibytes;
import io.aliquot.scheduler.placement.FreeCapacity;
import io.aliquot.scheduler.simulation.PlacementEngine.PlacedPod;
import io.aliquot.scheduler.simulation.PodRequest;
import io.aliquot.scheduler.simulation.SimulatedNode;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.ContainerBuilder;
import io.fabric8.kubernetes.api.model.Quantity;
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
    private static final List<SimulatedNode> NODES = List.of(
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

    private static SimulatedNode node(String name, int cpuMillis, int gibibytes, int gpus, String model) {
        return TestPods.node(name, new UniformGpus(gpus, model, Trace.WHOLE, 100), cpuMillis, (long) gibibytes << 30);
    }

    private static Optional<GpuRequest> request(int gpus, int part) {
        return Optional.of(
                part < Trace.WHOLE
                        ? new GpuRequest(gpus, new Mebibytes(part), 0, false)
                        : new GpuRequest(gpus, new MemoryRequest.WholeCard(), 0, true));
    }

    private static TracePod pod(
            String name, int cpuMillis, int gibibytes, Optional<GpuRequest> request, Map<String, String> annotations) {
        return TestPods.pod(name, PodRequest.of(request, annotations, cpuMillis, (long) gibibytes << 30));
    }

    @ParameterizedTest
    @EnumSource
    void aPodIsPlacedExactlyIfItFitsAndNodesAreNeverOverallocated(Policy policy) {
        for (long seed = 0; seed < 20; seed++) {
            var replay = new Replay(NODES, policy, ALL, seed);
            var random = new Random(seed);
            List<PlacedPod> placed = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                TracePod pod = ALL.get(random.nextInt(ALL.size()));
                boolean fits = replay.groups().stream()
                        .anyMatch(group -> group.capacity().fits(replay.demand(pod)));
                Optional<PlacedPod> result = replay.place(pod);
                assertThat(result.isPresent()).as("seed %d, pod %d", seed, i).isEqualTo(fits);
                result.ifPresent(placed::add);
                if (random.nextInt(4) == 0 && !placed.isEmpty()) {
                    replay.end(placed.remove(random.nextInt(placed.size())));
                }
                assertThat(replay.capacities())
                        .allSatisfy(node -> assertThat(node.cpuMillis()).isNotNegative())
                        .allSatisfy(node -> assertThat(node.memoryMiB()).isNotNegative());
                assertThat(replay.groups().stream()
                                .mapToInt(Replay.NodeGroup::nodes)
                                .sum())
                        .isEqualTo(NODES.size());
                assertThat(replay.capacities().stream()
                                .mapToInt(FreeCapacity::free)
                                .sum())
                        .isEqualTo(18_000 - replay.allocated());
            }
            placed.forEach(replay::end);
            assertThat(replay.allocated()).isZero();
            assertThat(replay.capacities()).isEqualTo(new Replay(NODES, policy, ALL, seed).capacities());
        }
    }

    @ParameterizedTest
    @EnumSource
    void equalInputsGiveEqualPlacements(Policy policy) {
        assertThat(placed(policy)).isEqualTo(placed(policy));
    }

    private static List<Optional<PlacedPod>> placed(Policy policy) {
        var replay = new Replay(NODES, policy, ALL, 1);
        List<Optional<PlacedPod>> placed = new ArrayList<>();
        for (int i = 0; i < 30; i++) {
            placed.add(replay.place(ALL.get(i * 7 % ALL.size())));
        }
        return placed;
    }

    @Test
    void aPodIsPlacedOnlyOnAModelThatItAccepts() {
        var replay = new Replay(NODES.subList(0, 1), Policy.BEST_FIT, ALL, 0);

        assertThat(replay.place(OF_MODEL_L)).isEmpty();
        assertThat(replay.place(HALF)).map(PlacedPod::node).contains("small-0");
    }

    @Test
    void binpackFillsANodeAndSpreadSelectsTheEmptiest() {
        var binpack = new Replay(NODES, Policy.BINPACK, ALL, 0);
        var spread = new Replay(NODES, Policy.SPREAD, ALL, 0);

        assertThat(List.of(binpack.place(HALF), binpack.place(HALF)))
                .extracting(placed -> placed.orElseThrow().node())
                .containsExactly("small-0", "small-0");
        assertThat(List.of(spread.place(HALF), spread.place(HALF)))
                .extracting(placed -> placed.orElseThrow().node())
                .containsExactly("large-0", "large-1");
    }

    @Test
    void systemPodsCountAsRequestsOnTheirNode() {
        SimulatedNode other = NODES.get(1);
        SimulatedNode busy =
                node("zz", 8_000, 32, 1, "S").withSystemPod(PodRequest.of(Optional.empty(), Map.of(), 4_000, 8L << 30));
        var replay = new Replay(List.of(other, busy), Policy.BINPACK, ALL, 0);

        // The fuller node comes first although it is last by name; then its CPU is used up.
        assertThat(replay.place(HALF)).map(PlacedPod::node).contains("zz");
        assertThat(replay.place(HALF)).map(PlacedPod::node).contains("small-1");
    }

    @Test
    void usageIsReportedPerGpu() {
        var replay = new Replay(NODES.subList(1, 3), Policy.SPREAD, ALL, 0);
        replay.place(HALF);
        replay.place(EIGHT);
        replay.place(OF_MODEL_L);

        assertThat(replay.usage())
                .map(node -> node.stream().map(gpu -> gpu.memoryMiB()).toList())
                .containsExactly(List.of(0L), List.of(500L, 300L, 0L, 0L, 0L, 0L, 0L, 0L));
    }

    /** kube-scheduler does not call the extender for them. */
    @ParameterizedTest
    @MethodSource("greedy")
    void podsThatKubeSchedulerRejectsOnAllNodesDoNotTeachThePolicy(TracePod greedy) {
        List<TracePod> pods = List.of(HALF, WHOLE, HALF, OF_MODEL_L, WHOLE, HALF, EIGHT, HALF);
        var with = new Replay(NODES, Policy.FRAGMENTATION, ALL, 0);
        var without = new Replay(NODES, Policy.FRAGMENTATION, ALL, 0);

        for (int i = 0; i < 50; i++) {
            assertThat(with.place(greedy)).isEmpty();
        }
        assertThat(pods.stream().map(with::place).map(ReplayTest::where).toList())
                .isEqualTo(
                        pods.stream().map(without::place).map(ReplayTest::where).toList());
    }

    private static Stream<TracePod> greedy() {
        return Stream.of(
                pod("cpu", 1_000_000, 8, request(1, 100), Map.of()),
                pod("vgpus", 1, 1, Optional.of(new GpuRequest(801, new Mebibytes(100), 0, false)), Map.of()),
                pod("memory", 1, 1, Optional.of(new GpuRequest(1, new Mebibytes(8_001), 0, false)), Map.of()));
    }

    @Test
    void kubeSchedulerCountsTheAmountsInTheManifestAndThePeakOverTheContainersThatRunAtOneTime() {
        Container first = TestPods.container("first", Resources.MEMORY_PERCENTAGE, "70", Resources.CORES, "80");
        Container proxy = new ContainerBuilder(TestPods.container("proxy", Resources.MEMORY, "100"))
                .withRestartPolicy("Always")
                .build();
        Container second = TestPods.container("second", Resources.MEMORY, "600", Resources.CORES, "10");
        Container main = new ContainerBuilder(
                        TestPods.container("main", Resources.VGPU, "2", Resources.MEMORY, "500", Resources.CORES, "60"))
                .editResources()
                .addToRequests("cpu", new Quantity("1m"))
                .addToRequests("memory", new Quantity("2"))
                .endResources()
                .build();
        Container whole = TestPods.container("whole", Resources.VGPU, "1");

        assertThat(ResourceVector.of(TestPods.request(List.of(first, proxy, second), List.of(main, whole))))
                .isEqualTo(new ResourceVector(1, 2, 4, 700, 70, 80));
        assertThat(ResourceVector.of(NODES.get(2)))
                .isEqualTo(new ResourceVector(96_000, 384L << 30, 800, 8000, 800, 800));
    }

    private static String where(Optional<PlacedPod> placed) {
        return placed.map(one -> one.node() + one.gpus()).orElse("nowhere");
    }

    @Test
    void drawnAddsPodsToTheWorkloadWithoutExceedingTheCapacityToRequest() {
        var trace = new Trace(NODES, new TreeMap<>(Map.of("all", ALL)), List.of());
        List<TracePod> arrivals = ArrivalOrder.DRAWN.arrivals(trace, ALL, 30_000, 5);

        assertThat(arrivals).containsAll(ALL);
        assertThat(arrivals.stream().mapToLong(trace::requestedGpu).sum()).isBetween(30_000L - 8_000, 30_000L);
        assertThat(ArrivalOrder.DRAWN.arrivals(trace, ALL, 30_000, 5)).isEqualTo(arrivals);
        assertThat(ArrivalOrder.DRAWN.arrivals(trace, ALL, 30_000, 6)).isNotEqualTo(arrivals);
    }

    @Test
    void fragmentationIsTheFreeGpuThatTypicalPodsCannotUse() {
        var replay = new Replay(NODES.subList(2, 3), Policy.BINPACK, ALL, 0);
        replay.place(HALF);
        FreeCapacity node = replay.capacities().get(0); // 7.5 GPUs and 92 CPUs left

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
