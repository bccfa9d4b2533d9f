package io.aliquot.scheduler.placement;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.SharingMode;
import io.aliquot.scheduler.placement.GpuSelectorOracleTest.Case;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** Compares each candidate with a new node that holds the pod. */
class CandidatePlacementsTest {
    private static final int CASES = 3000;
    private static final HostResources HOST = new HostResources(64_000, (64L << 30) + 12_345);
    private static final HostResources REQUESTS = new HostResources(1_500, 3_000_000_001L);
    private static final PodGpuRequest WITHOUT_GPUS = PodGpuRequest.of(List.of(), Map.of(), false);

    private record Way(int gpu, FreeCapacity after) {}

    @Test
    void eachCandidateLeavesTheFreeCapacityOfTheNodeWithThePod() {
        int chosenFrom = 0;
        int ofSeveralGpus = 0;
        for (int seed = 0; seed < CASES; seed++) {
            Case one = GpuSelectorOracleTest.random(seed);
            PodGpuRequest ask = (seed % 10 == 0 ? WITHOUT_GPUS : one.pod()).withHostRequests(REQUESTS);
            PlacementPolicy policy = seed % 4 == 0 ? one.policy() : PlacementPolicy.FRAGMENTATION;
            if (!(GpuSelector.select(ask, one.gpus(), policy) instanceof GpuSelection.Selected chosen)) {
                continue;
            }
            var models = new GpuModels();
            FreeCapacity.Shape shape =
                    models.shape(one.gpus().stream().map(GpuInfo::capacity).toList(), HOST);
            FreeCapacity before = FreeCapacity.of(shape, HOST, one.gpus());
            boolean each = ask.requestsOneVgpu() && policy == PlacementPolicy.FRAGMENTATION;

            var ways = new CandidatePlacements(ask, models);
            ways.find(before, HOST, one.gpus(), policy);

            assertThat(IntStream.range(0, ways.count()).mapToObj(way -> new Way(ways.gpu(way), ways.after(way))))
                    .as("seed %d: %s among %s", seed, ask, one.gpus())
                    .isEqualTo(each ? eachGpu(ask, one, shape) : List.of(way(chosen, one, shape)));
            chosenFrom += ways.count() > 1 ? 1 : 0;
            ofSeveralGpus += chosen.perGpu().size() > 1 ? 1 : 0;
        }
        assertThat(chosenFrom).isGreaterThan(50);
        assertThat(ofSeveralGpus).isGreaterThan(50);
    }

    @Test
    void eachFreeCapacityThatThePodCanLeaveIsListedOnceTheFullestGpuFirst() {
        List<GpuInfo> gpus = Gpus.node("0:0 0:40 0:0 0:95 0:60", "", SharingMode.CORE_MEMORY);
        CandidatePlacements candidates = find(Gpus.request("APP:main: gpumem=10"), gpus);
        assertThat(candidates.before().free()).isEqualTo(2 * 1000 + 600 + 400 + 50);
        assertThat(IntStream.range(0, candidates.count()).map(candidates::gpu)).containsExactly(4, 1, 0);
        FreeCapacity first = candidates.after(0);
        assertThat(IntStream.range(0, 5).map(first::gpuMiB)).containsExactly(5, 30, 60, 100, 100);
        assertThat(first.cpuMillis()).isEqualTo(62_500);
        assertThat(IntStream.range(0, 5).map(candidates.after(2)::gpuMiB)).containsExactly(5, 40, 60, 90, 100);
        assertThat(candidates.demand().gpuMiB()).isEqualTo(10);
    }

    @Test
    void aPodWithSeveralVgpusHasOneCandidate() {
        List<GpuInfo> gpus = Gpus.node("0:0 0:40 0:95 0:60", "", SharingMode.CORE_MEMORY);
        CandidatePlacements candidates = find(Gpus.request("APP:main: gpu=2 gpumem=10"), gpus);
        assertThat(candidates.count()).isEqualTo(1);
        assertThat(candidates.gpu(0)).as("the first of both").isEqualTo(1);
        assertThat(IntStream.range(0, 4).map(candidates.after(0)::gpuMiB)).containsExactly(5, 30, 50, 100);
        CandidatePlacements withoutGpus = find(WITHOUT_GPUS, List.of());
        assertThat(withoutGpus.gpu(0)).isEqualTo(-1);
        assertThat(withoutGpus.after(0).cpuMillis()).isEqualTo(62_500);
    }

    /** The candidates on one node after another; percentages are of the largest GPU of the node. */
    private static CandidatePlacements find(PodGpuRequest request, List<GpuInfo> gpus) {
        var models = new GpuModels();
        var candidates = new CandidatePlacements(request.withHostRequests(REQUESTS), models);
        for (List<GpuInfo> node : List.of(Gpus.empty(1, 50), gpus)) {
            FreeCapacity.Shape shape =
                    models.shape(node.stream().map(GpuInfo::capacity).toList(), HOST);
            candidates.find(FreeCapacity.of(shape, HOST, node), HOST, node, PlacementPolicy.FRAGMENTATION);
        }
        return candidates;
    }

    /** Of those that leave the same room the first, the fullest GPU first and of equally full ones the smallest. */
    private static List<Way> eachGpu(PodGpuRequest ask, Case one, FreeCapacity.Shape shape) {
        var ways = new ArrayList<Way>();
        one.gpus().stream()
                .sorted(Comparator.comparing((GpuInfo room) -> -room.fullness)
                        .thenComparing(room -> room.gpu().memoryMiB()))
                .forEach(room -> {
                    if (GpuSelector.select(ask, List.of(room), PlacementPolicy.BINPACK)
                            instanceof GpuSelection.Selected chosen) {
                        Way way = way(chosen, one, shape);
                        if (ways.stream().noneMatch(other -> other.after().equals(way.after()))) {
                            ways.add(way);
                        }
                    }
                });
        return ways;
    }

    private static Way way(GpuSelection.Selected chosen, Case one, FreeCapacity.Shape shape) {
        int first = -1;
        var rooms = new ArrayList<>(one.gpus());
        for (int gpu = rooms.size() - 1; gpu >= 0; gpu--) {
            GpuInfo room = rooms.get(gpu);
            GpuAmount more = chosen.perGpu().get(room.gpu().uuid());
            if (more != null) {
                rooms.set(gpu, with(room, more));
                first = gpu;
            }
        }
        return new Way(first, FreeCapacity.of(shape, HOST.minus(REQUESTS), rooms));
    }

    private static GpuInfo with(GpuInfo room, GpuAmount more) {
        GpuAmount taken = room.allocated();
        return new GpuInfo(
                room.capacity(),
                new GpuAmount(
                        taken.memoryMiB() + more.memoryMiB(),
                        taken.cores() + more.cores(),
                        taken.slots() + more.slots(),
                        taken.exclusive() || more.exclusive()));
    }
}
