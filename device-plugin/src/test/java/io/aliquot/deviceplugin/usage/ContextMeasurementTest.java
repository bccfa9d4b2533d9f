package io.aliquot.deviceplugin.usage;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuKind;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.deviceplugin.nvml.GpuCondition;
import io.aliquot.deviceplugin.nvml.GpuUsage;
import io.aliquot.deviceplugin.nvml.PhysicalGpu;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Two GPUs of a model whose contexts take at least 216 MiB, and one of another model. */
final class ContextMeasurementTest {
    private static final PhysicalGpu A = gpu("a", 0, "A100", 216);
    private static final PhysicalGpu B = gpu("b", 1, "A100", 216);
    private static final PhysicalGpu OTHER = gpu("c", 2, "L4", 87);

    private final ContextMeasurement contexts = new ContextMeasurement();

    @Test
    void theSmallestProcessCountsForAllGpusOfItsModelOnceItHasBeenSeenForThreeSamples() {
        sample(process(1, 450), process(2, 430));
        sample(process(1, 450), process(2, 430));
        assertThat(contextMiB(A)).as("two samples").isEqualTo(216);

        sample(process(1, 450), process(2, 430));
        assertThat(contextMiB(A)).as("430 in steps of 8").isEqualTo(424);
        assertThat(contextMiB(B)).isEqualTo(424);
        assertThat(contextMiB(OTHER)).as("another model").isEqualTo(87);

        sample();
        sample(process(3, 9000));
        assertThat(contextMiB(A)).as("those that have ended count, too").isEqualTo(424);
    }

    @Test
    void aProcessThatHasAllocatedMemoryIsNotTakenForAContext() {
        for (int i = 0; i < 5; i++) {
            sample(process(1, 3 * 216 + 8));
        }
        assertThat(contextMiB(A)).isEqualTo(216);
    }

    /** What a tenant could do with a process of other memory than a context's. */
    @Test
    void aSmallerProcessThanTheLowerBoundDoesNotCountAsAContext() {
        for (int i = 0; i < 5; i++) {
            sample(process(1, 10));
        }
        assertThat(contextMiB(A)).isEqualTo(216);
    }

    @Test
    void aProcessCountsWithItsLargestMemoryAndAPidWithoutAFigureNotAtAll() {
        sample(process(1, 300), new GpuUsage.GpuProcess(2, OptionalLong.empty()));
        sample(process(1, 600), new GpuUsage.GpuProcess(2, OptionalLong.empty()));
        sample(process(1, 300), new GpuUsage.GpuProcess(2, OptionalLong.empty()));
        assertThat(contextMiB(A)).isEqualTo(600);
    }

    @Test
    void theLastInventoryOfTheSameDriverKeepsTheMeasurement() {
        assertThat(contexts.contextMiB(A, List.of(A), Optional.of(inventory(424))))
                .isEqualTo(424);
        assertThat(contexts.contextMiB(A, List.of(A), Optional.of(inventory(0))))
                .as("of an earlier version")
                .isEqualTo(216);
        for (int i = 0; i < 3; i++) {
            sample(process(1, 500));
        }
        assertThat(contexts.contextMiB(A, List.of(A), Optional.of(inventory(424))))
                .as("the smaller one")
                .isEqualTo(424);
    }

    @Test
    void withoutALowerBoundNothingIsAssumed() {
        for (int i = 0; i < 3; i++) {
            sample(process(1, 500));
        }
        PhysicalGpu unknown = gpu("a", 0, "A100", 0);
        assertThat(contexts.contextMiB(unknown, List.of(unknown), Optional.empty()))
                .isZero();
    }

    private int contextMiB(PhysicalGpu gpu) {
        return contexts.contextMiB(gpu, List.of(A, B, OTHER), Optional.empty());
    }

    private void sample(GpuUsage.GpuProcess... processes) {
        var nvml = new GpuUsage(
                A.uuid(), OptionalInt.empty(), OptionalInt.empty(), OptionalInt.empty(), List.of(processes), List.of());
        contexts.add(new NodeUsage(List.of(new NodeUsage.OfGpu(nvml, 0, 0)), List.of()));
    }

    private static GpuUsage.GpuProcess process(int pid, long mib) {
        return new GpuUsage.GpuProcess(pid, OptionalLong.of(mib << 20));
    }

    private static Inventory inventory(int contextMiB) {
        var gpu = new Gpu(B.uuid(), 1, B.model(), 81920, contextMiB, -1, Gpu.HEALTHY, Gpu.SHIM, Map.of());
        return new Inventory(new VisibleDevices("{uuid}"), Scaling.ONE, Scaling.ONE, 10, List.of(gpu));
    }

    private static PhysicalGpu gpu(String name, int index, String model, int leastContextMiB) {
        return new PhysicalGpu(
                "GPU-00000000-0000-0000-0000-00000000000" + name,
                index,
                model,
                81920,
                leastContextMiB,
                -1,
                new GpuCondition(true, List.of(), true, Set.of()),
                Map.of(),
                GpuKind.CARD);
    }
}
