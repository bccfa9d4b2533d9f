package io.aliquot.scheduler.placement;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Placement;
import io.aliquot.scheduler.placement.Choice.Chosen;
import io.aliquot.scheduler.placement.ChooserOracleTest.Case;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** Each way beside the same node, made anew with the pod on it. */
class WaysTest {
    private static final int CASES = 3000;
    private static final HostLoad HOST = new HostLoad(64_000, (64L << 30) + 12_345);
    private static final HostLoad REQUESTS = new HostLoad(1_500, 3_000_000_001L);
    private static final PodAsk WITHOUT_GPUS = PodAsk.of(List.of(), Map.of(), false);

    private record Way(int gpu, Room after) {}

    @Test
    void eachLeavesTheRoomOfTheNodeWithThePodOnIt() {
        int chosenFrom = 0;
        int ofSeveralGpus = 0;
        for (int seed = 0; seed < CASES; seed++) {
            Case one = ChooserOracleTest.random(seed);
            PodAsk ask = (seed % 10 == 0 ? WITHOUT_GPUS : one.ask()).requesting(REQUESTS);
            Placement policy = seed % 4 == 0 ? one.policy() : Placement.FRAGMENTATION;
            if (!(Chooser.choose(ask, one.rooms(), policy) instanceof Chosen chosen)) {
                continue;
            }
            var models = new GpuModels();
            Room.Shape shape =
                    models.shape(one.rooms().stream().map(GpuRoom::card).toList(), HOST);
            Room before = Room.of(shape, HOST, one.rooms());
            boolean each = ask.wantsOneGpu() && policy == Placement.FRAGMENTATION;

            var ways = new Ways(ask, models);
            ways.find(before, HOST, one.rooms(), policy);

            for (int way = 0; way < ways.count(); way++) {
                assertThat(ways.after(way)).isEqualTo(ways.kept(way));
            }
            assertThat(IntStream.range(0, ways.count()).mapToObj(way -> new Way(ways.gpu(way), ways.kept(way))))
                    .as("seed %d: %s among %s", seed, ask, one.rooms())
                    .isEqualTo(each ? eachGpu(ask, one, shape) : List.of(way(chosen, one, shape)));
            chosenFrom += ways.count() > 1 ? 1 : 0;
            ofSeveralGpus += chosen.perGpu().size() > 1 ? 1 : 0;
        }
        assertThat(chosenFrom).isGreaterThan(50);
        assertThat(ofSeveralGpus).isGreaterThan(50);
    }

    /** Of those that leave the same room the first, the fullest GPU first and of equally full ones the smallest. */
    private static List<Way> eachGpu(PodAsk ask, Case one, Room.Shape shape) {
        var ways = new ArrayList<Way>();
        one.rooms().stream()
                .sorted(Comparator.comparing((GpuRoom room) -> -room.fullness)
                        .thenComparing(room -> room.gpu().memoryMiB()))
                .forEach(room -> {
                    if (Chooser.choose(ask, List.of(room), Placement.BINPACK) instanceof Chosen chosen) {
                        Way way = way(chosen, one, shape);
                        if (ways.stream().noneMatch(other -> other.after().equals(way.after()))) {
                            ways.add(way);
                        }
                    }
                });
        return ways;
    }

    private static Way way(Chosen chosen, Case one, Room.Shape shape) {
        int first = -1;
        var rooms = new ArrayList<>(one.rooms());
        for (int gpu = rooms.size() - 1; gpu >= 0; gpu--) {
            GpuRoom room = rooms.get(gpu);
            Amount more = chosen.perGpu().get(room.gpu().uuid());
            if (more != null) {
                rooms.set(gpu, with(room, more));
                first = gpu;
            }
        }
        return new Way(first, Room.of(shape, HOST.minus(REQUESTS), rooms));
    }

    private static GpuRoom with(GpuRoom room, Amount more) {
        Amount taken = room.taken();
        return new GpuRoom(
                room.card(),
                new Amount(
                        taken.memoryMiB() + more.memoryMiB(),
                        taken.cores() + more.cores(),
                        taken.slots() + more.slots(),
                        taken.exclusive() || more.exclusive()));
    }
}
