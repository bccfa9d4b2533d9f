package io.aliquot.deviceplugin.inventory;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.nodes.GpuKind;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.NodeSharing;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.deviceplugin.kubelet.AdvertisedSlots;
import io.aliquot.deviceplugin.node.NodeSettings;
import io.aliquot.deviceplugin.nvml.GpuCondition;
import io.aliquot.deviceplugin.nvml.PhysicalGpu;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

final class InventoryBuilderTest {
    private static final VisibleDevices UUIDS = new VisibleDevices("{uuid}");
    private static final Map<String, GpuHealth> B_UNHEALTHY =
            Map.of(uuid("b"), new GpuHealth.Unhealthy("XID 48", Instant.EPOCH));
    private static final NodeSettings TEN_SLOTS = new NodeSettings(10, Scaling.ONE, Scaling.ONE);

    @Test
    void extendedResourcesCountEachGpuAndHealthySlotsOnlyHealthyGpus() {
        Inventory inventory = InventoryBuilder.build(
                List.of(gpu(0, "a"), gpu(1, "b")), List.of(), B_UNHEALTHY, gpu -> 0, UUIDS, TEN_SLOTS);

        assertThat(inventory.extendedResources(NodeSharing.all(SharingMode.CORE_MEMORY)))
                .isEqualTo(Map.of(
                        "nvidia.com/gpumem", 2000L, "nvidia.com/gpumem-percentage", 200L, "nvidia.com/gpucores", 200L));
        assertThat(InventoryBuilder.slots(inventory)).isEqualTo(new AdvertisedSlots(20, 10));
        assertThat(inventory.gpus()).extracting(Gpu::healthy).containsExactly(true, false);
    }

    @Test
    void aGpuThatNvmlNoLongerListsStaysSoThatExtendedResourcesDoNotShrink() {
        Inventory before = InventoryBuilder.build(
                List.of(gpu(0, "b"), gpu(1, "a")), List.of(), Map.of(), gpu -> 0, UUIDS, TEN_SLOTS);

        // NVML has renumbered the other GPU.
        Inventory now =
                InventoryBuilder.build(List.of(gpu(0, "a")), before.gpus(), B_UNHEALTHY, gpu -> 0, UUIDS, TEN_SLOTS);

        assertThat(now.gpus()).extracting(Gpu::uuid).containsExactly(uuid("a"), uuid("b"));
        assertThat(now.gpus()).extracting(Gpu::index).containsExactly(0, 1);
        assertThat(now.gpus()).extracting(Gpu::healthy).containsExactly(true, false);
        assertThat(now.extendedResources(NodeSharing.all(SharingMode.CORE_MEMORY)))
                .isEqualTo(before.extendedResources(NodeSharing.all(SharingMode.CORE_MEMORY)));
    }

    @Test
    void aGpuThatNvmlListsAgainIsHealthyAndNothingElseChanges() {
        List<PhysicalGpu> both = List.of(gpu(0, "a"), gpu(1, "b"));
        Inventory first = InventoryBuilder.build(both, List.of(), Map.of(), gpu -> 0, UUIDS, TEN_SLOTS);
        Inventory without =
                InventoryBuilder.build(List.of(gpu(0, "a")), first.gpus(), B_UNHEALTHY, gpu -> 0, UUIDS, TEN_SLOTS);

        Inventory back = InventoryBuilder.build(both, without.gpus(), Map.of(), gpu -> 0, UUIDS, TEN_SLOTS);

        assertThat(back.print()).isEqualTo(first.print());
    }

    @Test
    void extendedResourcesAreScaled() {
        var settings = new NodeSettings(10, new Scaling(150), new Scaling(80));
        Inventory inventory = InventoryBuilder.build(
                List.of(gpu(0, "a"), gpu(1, "b")), List.of(), B_UNHEALTHY, gpu -> 0, UUIDS, settings);
        long memory = inventory.gpus().stream()
                .mapToLong(gpu -> gpu.memoryMiB() * 3L / 2)
                .sum();

        assertThat(inventory.extendedResources(NodeSharing.all(SharingMode.CORE_MEMORY)))
                .isEqualTo(Map.of(
                        "nvidia.com/gpumem",
                        memory,
                        "nvidia.com/gpumem-percentage",
                        300L,
                        "nvidia.com/gpucores",
                        160L));
    }

    private static PhysicalGpu gpu(int index, String name) {
        var good = new GpuCondition(true, List.of(), true, Set.of());
        return new PhysicalGpu(uuid(name), index, "model", 1000, 0, -1, good, Map.of(), GpuKind.CARD);
    }

    private static String uuid(String name) {
        return "GPU-00000000-0000-0000-0000-00000000000" + name;
    }
}
