package io.aliquot.api.foreign;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.pods.Vgpu;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class HamiAllocationTest {
    private static final String A = "GPU-29d5fa0d-935b-2966-aff8-483a174d61d1";
    private static final String B = "GPU-1afede84-4e70-2174-49af-f07ebb94d1ae";

    @Test
    void readsTheDevicesOfEachContainer() {
        HamiAllocation allocation =
                HamiAllocation.parse(";" + A + ",NVIDIA,1024,20:" + B + ",NVIDIA,2048,0:;" + A + ",NVIDIA,512,5,0:;");

        assertThat(allocation.containers()).hasSize(3);
        assertThat(allocation.containers().get(0)).isEmpty();
        assertThat(allocation.containers().get(1)).containsExactly(vgpu(A, 1024, 20), vgpu(B, 2048, 0));
        assertThat(allocation.containers().get(2)).containsExactly(vgpu(A, 512, 5));
    }

    @Test
    void readsATextWithoutSeparatorsAtItsEnd() {
        assertThat(HamiAllocation.parse(A + ",NVIDIA,1024,20").containers())
                .isEqualTo(List.of(List.of(vgpu(A, 1024, 20))));
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "'' | at least one device",
                ";; | at least one device",
                "GPU-29d5fa0d-935b-2966-aff8-483a174d61d1,NVIDIA,1024:; | UUID,vendor,MiB,cores",
                "GPU-29d5fa0d-935b-2966-aff8-483a174d61d1,NVIDIA,-1,0:; | MiB",
                "GPU-29d5fa0d-935b-2966-aff8-483a174d61d1,NVIDIA,0,0:; | memory from 1",
                "GPU-29d5fa0d-935b-2966-aff8-483a174d61d1,NVIDIA,1,101:; | cores from 0 to 100",
                "GPU-29d5fa0d-935b-2966-aff8-483a174d61d1[0-1],NVIDIA,1024,20:; | UUID",
                "Ascend910-0,Ascend,1024,20:; | UUID",
            })
    void refusesWhatItCannotCount(String text, String message) {
        assertThatThrownBy(() -> HamiAllocation.parse(text))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining(message);
    }

    private static Vgpu vgpu(String uuid, int memoryMiB, int cores) {
        return new Vgpu(uuid, memoryMiB, cores, CorePolicy.FIXED, Priority.NORMAL, 0, false);
    }
}
