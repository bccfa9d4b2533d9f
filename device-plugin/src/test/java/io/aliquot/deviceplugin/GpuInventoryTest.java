package io.aliquot.deviceplugin;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.Scaling;
import io.aliquot.api.SharingMode;
import io.aliquot.api.VisibleDevices;
import io.aliquot.deviceplugin.kubelet.SlotOffer;
import io.aliquot.deviceplugin.node.NodeWishes;
import io.aliquot.deviceplugin.nvml.PhysicalGpu;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;

final class GpuInventoryTest {
    private static final VisibleDevices UUIDS = new VisibleDevices("{uuid}");
    private static final NodeWishes TEN_SLOTS = new NodeWishes(10, Scaling.ONE, Scaling.ONE);

    @Test
    void totalsCountEveryGpuWhateverItsHealthAndSlotsOnlyTheHealthyOnes() {
        Inventory inventory = GpuInventory.of(
                List.of(gpu(0, "a", ""), gpu(1, "b", "XID error 48")), Optional.empty(), UUIDS, TEN_SLOTS);

        assertThat(inventory.totals(SharingMode.CORE_MEMORY))
                .isEqualTo(Map.of(
                        "nvidia.com/gpumem", 2000L, "nvidia.com/gpumem-percentage", 200L, "nvidia.com/gpucores", 200L));
        assertThat(GpuInventory.offer(inventory)).isEqualTo(new SlotOffer(20, 10));
        assertThat(inventory.gpus()).extracting(Gpu::healthy).containsExactly(true, false);
    }

    @Test
    void aGpuThatNvmlNoLongerShowsStaysUnhealthySoThatTotalsNeverShrink() {
        Inventory before =
                GpuInventory.of(List.of(gpu(0, "a", ""), gpu(1, "b", "")), Optional.empty(), UUIDS, TEN_SLOTS);

        // The other one is numbered anew.
        Inventory now = GpuInventory.of(List.of(gpu(0, "b", "")), Optional.of(before), UUIDS, TEN_SLOTS);

        assertThat(now.gpus()).extracting(Gpu::uuid).containsExactly(uuid("b"), uuid("a"));
        assertThat(now.gpus()).extracting(Gpu::index).containsExactly(0, 1);
        assertThat(now.gpus()).extracting(Gpu::healthy).containsExactly(true, false);
        assertThat(now.totals(SharingMode.CORE_MEMORY)).isEqualTo(before.totals(SharingMode.CORE_MEMORY));
    }

    @Test
    void aGpuThatComesBackIsWellAgainAndNothingElseChanges() {
        List<PhysicalGpu> both = List.of(gpu(0, "a", ""), gpu(1, "b", ""));
        Inventory first = GpuInventory.of(both, Optional.empty(), UUIDS, TEN_SLOTS);
        Inventory without = GpuInventory.of(List.of(gpu(0, "a", "")), Optional.of(first), UUIDS, TEN_SLOTS);

        Inventory back = GpuInventory.of(both, Optional.of(without), UUIDS, TEN_SLOTS);

        assertThat(back.print()).isEqualTo(first.print());
    }

    private static PhysicalGpu gpu(int index, String name, String trouble) {
        return new PhysicalGpu(uuid(name), index, "model", 1000, -1, trouble, Map.of());
    }

    private static String uuid(String name) {
        return "GPU-00000000-0000-0000-0000-00000000000" + name;
    }

    @Test
    void totalsAreWhatIsSold() {
        var wishes = new NodeWishes(10, new Scaling(150), new Scaling(80));
        Inventory inventory =
                GpuInventory.of(List.of(gpu(0, "a", ""), gpu(1, "b", "XID error 48")), Optional.empty(), UUIDS, wishes);
        long memory = inventory.gpus().stream()
                .mapToLong(gpu -> gpu.memoryMiB() * 3L / 2)
                .sum();

        assertThat(inventory.totals(SharingMode.CORE_MEMORY))
                .isEqualTo(Map.of(
                        "nvidia.com/gpumem",
                        memory,
                        "nvidia.com/gpumem-percentage",
                        300L,
                        "nvidia.com/gpucores",
                        160L));
    }
}
