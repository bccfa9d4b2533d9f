package io.aliquot.scheduler.simulate;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.placement.Demand;
import io.aliquot.scheduler.placement.Room;
import java.util.List;
import org.junit.jupiter.api.Test;

class FailureTest {
    private static final Room.Shape OF_MODEL_0 = new Room.Shape(8_000, 32_768, 2, Room.WHOLE, 0, 0);
    private static final Room.Shape OF_MODEL_1 = new Room.Shape(8_000, 32_768, 2, Room.WHOLE, 0, 1);
    private static final Demand HALF = new Demand(1_000, 1_024, 1, false, 500, 0, Demand.ANY);
    private static final Demand WHOLE = new Demand(1_000, 1_024, 1, true, 0, 0, Demand.ANY);
    private static final Demand WHOLE_OF_MODEL_0 = new Demand(1_000, 1_024, 1, true, 0, 0, 0b01);
    private static final Demand ALL_CPU = new Demand(8_000, 1_024, 0, false, 0, 0, Demand.ANY);
    private static final Demand ALL_MEMORY = new Demand(1_000, 32_768, 0, false, 0, 0, Demand.ANY);

    private static Room with(Room.Shape shape, Demand... demands) {
        Room room = Room.of(shape);
        for (Demand demand : demands) {
            // On the emptiest GPU.
            room = room.with(demand, demand.gpus() == 0 ? 0 : room.gpus() - 1);
        }
        return room;
    }

    private static Failure of(Demand demand, Room... rooms) {
        return Failure.of(
                demand,
                List.of(rooms).stream().map(room -> new Replay.Alike(room, 1)).toList());
    }

    @Test
    void whatKeepsMostOfTheFreeGpuFromThePodIsTheReason() {
        assertThat(of(WHOLE, with(OF_MODEL_0, ALL_CPU))).isEqualTo(Failure.CPU);
        assertThat(of(WHOLE, with(OF_MODEL_0, ALL_MEMORY))).isEqualTo(Failure.MEMORY);
        assertThat(of(WHOLE, with(OF_MODEL_0, HALF, HALF))).isEqualTo(Failure.FRAGMENTED);
        assertThat(of(WHOLE, with(OF_MODEL_0, WHOLE, HALF))).isEqualTo(Failure.FULL);
        assertThat(of(WHOLE_OF_MODEL_0, with(OF_MODEL_0, WHOLE, WHOLE), with(OF_MODEL_1)))
                .isEqualTo(Failure.MODEL);
        assertThat(of(WHOLE, with(OF_MODEL_0, HALF, HALF), with(OF_MODEL_1, ALL_CPU)))
                .isEqualTo(Failure.CPU);
    }

    @Test
    void aPodThatNoEmptyNodeHoldsNeverFits() {
        var three = new Demand(1_000, 1_024, 3, true, 0, 0, Demand.ANY);

        assertThat(of(three, with(OF_MODEL_0), with(OF_MODEL_1))).isEqualTo(Failure.NEVER);
    }

    @Test
    void aPodWithoutGpusLacksCpuOrMemory() {
        assertThat(of(ALL_CPU, with(OF_MODEL_0, ALL_CPU))).isEqualTo(Failure.CPU);
        assertThat(of(ALL_MEMORY, with(OF_MODEL_0, ALL_MEMORY))).isEqualTo(Failure.MEMORY);
    }
}
