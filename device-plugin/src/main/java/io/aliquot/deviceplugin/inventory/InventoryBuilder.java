package io.aliquot.deviceplugin.inventory;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.deviceplugin.kubelet.AdvertisedSlots;
import io.aliquot.deviceplugin.node.NodeSettings;
import io.aliquot.deviceplugin.nvml.PhysicalGpu;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.ToIntFunction;

/**
 * Builds the inventory from the GPUs that NVML lists and those of the previous inventory.
 *
 * <p>A GPU that NVML no longer lists stays in the inventory as long as the caller passes it among the previous ones: pods
 * may still hold shares of it, and the node's extended resources must not become less than is allocated, or a restarted
 * kubelet rejects running pods of healthy GPUs.
 */
public final class InventoryBuilder {
    private static final int INDEXES = 1024;

    private InventoryBuilder() {}

    /**
     * Builds an inventory.
     *
     * @param detected the GPUs that NVML lists; one whose memory it does not tell now is as in the previous inventory
     * @param previous the GPUs of the previous inventory that are to stay
     * @param health of all these GPUs, by UUID
     * @param contextMiB what a CUDA context takes of a detected GPU
     */
    public static Inventory build(
            List<PhysicalGpu> detected,
            List<Gpu> previous,
            Map<String, GpuHealth> health,
            ToIntFunction<PhysicalGpu> contextMiB,
            VisibleDevices visibleDevices,
            NodeSettings settings) {
        List<Gpu> gpus = new ArrayList<>();
        Set<Integer> indexes = new HashSet<>();
        Set<String> uuids = new HashSet<>();
        for (PhysicalGpu gpu : detected) {
            GpuHealth present = health.getOrDefault(gpu.uuid(), Gpu.HEALTHY);
            gpus.add(previous.stream()
                    .filter(before -> gpu.memoryMiB() == 0 && before.uuid().equals(gpu.uuid()))
                    .findFirst()
                    .map(before -> before.withIndex(gpu.index()).withHealth(present))
                    .orElseGet(() -> new Gpu(
                            gpu.uuid(),
                            gpu.index(),
                            gpu.model(),
                            gpu.memoryMiB(),
                            contextMiB.applyAsInt(gpu),
                            gpu.numa(),
                            present,
                            Gpu.SHIM,
                            gpu.links(),
                            List.of(),
                            gpu.kind())));
            indexes.add(gpu.index());
            uuids.add(gpu.uuid());
        }
        for (Gpu missing : previous) {
            if (!uuids.contains(missing.uuid())) {
                int index = missing.index();
                while (!indexes.add(index)) {
                    index = (index + 1) % INDEXES; // NVML has renumbered the others
                }
                gpus.add(missing.withIndex(index).withHealth(health.getOrDefault(missing.uuid(), missing.health())));
            }
        }
        gpus.sort(Comparator.comparing(Gpu::index));
        return new Inventory(visibleDevices, settings.memoryScaling(), settings.coreScaling(), settings.slots(), gpus);
    }

    /** The slots to advertise to the kubelet: those of all GPUs, with the slots of unhealthy GPUs unhealthy. */
    public static AdvertisedSlots slots(Inventory inventory) {
        List<Gpu> gpus = inventory.gpusWithCapacity();
        int unhealthy = (int) gpus.stream().filter(gpu -> !gpu.healthy()).count();
        return new AdvertisedSlots(gpus.size() * inventory.slots(), unhealthy * inventory.slots());
    }
}
