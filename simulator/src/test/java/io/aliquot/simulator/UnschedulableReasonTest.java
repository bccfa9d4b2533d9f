package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.placement.DemandVector;
import io.aliquot.scheduler.placement.FreeCapacity;
import java.util.List;
import org.junit.jupiter.api.Test;

class UnschedulableReasonTest {
    private static final FreeCapacity.Shape OF_MODEL_0 =
            new FreeCapacity.Shape(8_000, 32_768, 2, FreeCapacity.WHOLE, 0, 0);
    private static final FreeCapacity.Shape OF_MODEL_1 =
            new FreeCapacity.Shape(8_000, 32_768, 2, FreeCapacity.WHOLE, 0, 1);
    private static final DemandVector HALF = new DemandVector(1_000, 1_024, 1, false, 500, 0, DemandVector.ANY);
    private static final DemandVector WHOLE = new DemandVector(1_000, 1_024, 1, true, 0, 0, DemandVector.ANY);
    private static final DemandVector WHOLE_OF_MODEL_0 = new DemandVector(1_000, 1_024, 1, true, 0, 0, 0b01);
    private static final DemandVector ALL_CPU = new DemandVector(8_000, 1_024, 0, false, 0, 0, DemandVector.ANY);
    private static final DemandVector ALL_MEMORY = new DemandVector(1_000, 32_768, 0, false, 0, 0, DemandVector.ANY);

    private static FreeCapacity with(FreeCapacity.Shape shape, DemandVector... demands) {
        FreeCapacity room = FreeCapacity.of(shape);
        for (DemandVector demand : demands) {
            // On the emptiest GPU.
            room = room.with(demand, demand.gpus() == 0 ? 0 : room.gpus() - 1);
        }
        return room;
    }

    private static UnschedulableReason of(DemandVector demand, FreeCapacity... rooms) {
        return UnschedulableReason.of(
                demand,
                List.of(rooms).stream().map(room -> new Replay.Alike(room, 1)).toList());
    }

    @Test
    void whatKeepsMostOfTheFreeGpuFromThePodIsTheReason() {
        assertThat(of(WHOLE, with(OF_MODEL_0, ALL_CPU))).isEqualTo(UnschedulableReason.CPU);
        assertThat(of(WHOLE, with(OF_MODEL_0, ALL_MEMORY))).isEqualTo(UnschedulableReason.MEMORY);
        assertThat(of(WHOLE, with(OF_MODEL_0, HALF, HALF))).isEqualTo(UnschedulableReason.FRAGMENTED);
        assertThat(of(WHOLE, with(OF_MODEL_0, WHOLE, HALF))).isEqualTo(UnschedulableReason.FULL);
        assertThat(of(WHOLE_OF_MODEL_0, with(OF_MODEL_0, WHOLE, WHOLE), with(OF_MODEL_1)))
                .isEqualTo(UnschedulableReason.MODEL);
        assertThat(of(WHOLE, with(OF_MODEL_0, HALF, HALF), with(OF_MODEL_1, ALL_CPU)))
                .isEqualTo(UnschedulableReason.CPU);
    }

    @Test
    void aPodThatNoEmptyNodeHoldsNeverFits() {
        var three = new DemandVector(1_000, 1_024, 3, true, 0, 0, DemandVector.ANY);

        assertThat(of(three, with(OF_MODEL_0), with(OF_MODEL_1))).isEqualTo(UnschedulableReason.NEVER);
    }

    @Test
    void aPodWithoutGpusLacksCpuOrMemory() {
        assertThat(of(ALL_CPU, with(OF_MODEL_0, ALL_CPU))).isEqualTo(UnschedulableReason.CPU);
        assertThat(of(ALL_MEMORY, with(OF_MODEL_0, ALL_MEMORY))).isEqualTo(UnschedulableReason.MEMORY);
    }
}
