package io.aliquot.scheduler.simulate;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.placement.Demand;
import io.aliquot.scheduler.placement.Room;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class ReplayTest {
    private static final Room.Shape SMALL = new Room.Shape(8_000, 32_768, 1, Room.WHOLE, 0, 0);
    private static final Room.Shape LARGE = new Room.Shape(96_000, 393_216, 8, Room.WHOLE, 0, 1);
    private static final Demand HALF = new Demand(4_000, 8_192, 1, false, 500, 0, Demand.ANY);
    private static final Demand WHOLE = new Demand(4_000, 8_192, 1, true, 0, 0, Demand.ANY);
    private static final Demand EIGHT = new Demand(8_000, 8_192, 8, true, 0, 0, Demand.ANY);
    private static final Demand CPU = new Demand(8_000, 1_024, 0, false, 0, 0, Demand.ANY);
    private static final Demand OF_MODEL_1 = new Demand(1_000, 1_024, 1, false, 300, 0, 0b10);
    private static final List<Demand> ALL = List.of(HALF, WHOLE, EIGHT, CPU, OF_MODEL_1);

    @ParameterizedTest
    @EnumSource
    void neverMoreThanThereIsAndNobodyIsRefusedForWhomThereIsRoom(Contender contender) {
        for (long seed = 0; seed < 20; seed++) {
            List<Room.Shape> nodes = List.of(SMALL, SMALL, LARGE, LARGE);
            var replay = new Replay<>(nodes, contender.policy(ALL), seed);
            var random = new Random(seed);
            long allocated = 0;
            for (int i = 0; i < 100; i++) {
                Demand demand = ALL.get(random.nextInt(ALL.size()));
                boolean room =
                        replay.nodes().stream().anyMatch(node -> node.room().fits(demand));
                assertThat(replay.offer(demand)).as("seed %d, pod %d", seed, i).isEqualTo(room);
                allocated += room ? demand.gpus() * (demand.whole() ? Room.WHOLE : demand.gpuMiB()) : 0;
                assertThat(replay.allocated()).isEqualTo(allocated);
                assertThat(replay.nodes())
                        .allSatisfy(node -> assertThat(node.room().cpuMillis()).isNotNegative())
                        .allSatisfy(node -> assertThat(node.room().memoryMiB()).isNotNegative());
                assertThat(replay.nodes().stream().mapToInt(Replay.Alike::nodes).sum())
                        .isEqualTo(nodes.size());
                int free = replay.nodes().stream()
                        .mapToInt(node -> node.nodes() * node.room().free())
                        .sum();
                assertThat(free).isEqualTo(18_000 - allocated);
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void equalInputsGiveEqualPlacements(Contender contender) {
        assertThat(placed(contender)).isEqualTo(placed(contender));
    }

    private static List<String> placed(Contender contender) {
        var replay = new Replay<>(List.of(SMALL, LARGE, LARGE), contender.policy(ALL), 1);
        List<String> placed = new ArrayList<>();
        for (int i = 0; i < 30; i++) {
            replay.offer(ALL.get(i * 7 % ALL.size()));
            placed.add(replay.nodes().toString());
        }
        return placed;
    }

    @Test
    void aPodThatTakesOneModelGoesToNoOther() {
        var replay = new Replay<>(List.of(SMALL), new BestFit(), 0);

        assertThat(replay.offer(OF_MODEL_1)).isFalse();
        assertThat(replay.offer(HALF)).isTrue();
    }

    @Test
    void fragmentationIsTheFreeGpuThatTypicalPodsCannotUse() {
        Room node = Room.of(LARGE).with(HALF, 0); // 7.5 GPUs and 92 CPUs left

        assertThat(TypicalPods.of(List.of(HALF)).fragmentation(node)).isEqualTo(0);
        assertThat(TypicalPods.of(List.of(WHOLE)).fragmentation(node)).isEqualTo(500);
        assertThat(TypicalPods.of(List.of(EIGHT)).fragmentation(node)).isEqualTo(7_500);
        assertThat(TypicalPods.of(List.of(CPU)).fragmentation(node)).isEqualTo(7_500);
        assertThat(TypicalPods.of(List.of(HALF, EIGHT)).fragmentation(node)).isEqualTo(3_750);
    }
}
