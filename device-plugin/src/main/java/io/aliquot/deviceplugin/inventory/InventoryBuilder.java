package io.aliquot.deviceplugin.inventory;

import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.VisibleDevices;
import io.aliquot.deviceplugin.kubelet.AdvertisedSlots;
import io.aliquot.deviceplugin.node.NodeSettings;
import io.aliquot.deviceplugin.nvml.PhysicalGpu;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * What the node has, from what NVML shows now and what we said before.
 *
 * <p>A GPU once told of stays, unhealthy while NVML doesn't show it: pods may hold shares of it, and the totals must
 * never be less than is allocated, or a restarted kubelet would refuse running pods of the GPUs that are well. It is
 * forgotten with the Node object, which whoever takes a GPU out of a machine deletes after draining it.
 */
public final class InventoryBuilder {
    private InventoryBuilder() {}

    /**
     * Puts it together.
     *
     * @param seen by NVML, each with its trouble
     * @param before what the node's annotation said last
     * @param wishes of the node's admin
     */
    public static Inventory of(
            List<PhysicalGpu> seen, Optional<Inventory> before, VisibleDevices visibleDevices, NodeSettings wishes) {
        List<Gpu> gpus = new ArrayList<>();
        Set<Integer> indexes = new HashSet<>();
        Set<String> uuids = new HashSet<>();
        for (PhysicalGpu gpu : seen) {
            gpus.add(new Gpu(
                    gpu.uuid(),
                    gpu.index(),
                    gpu.model(),
                    gpu.memoryMiB(),
                    0, // not measured yet
                    gpu.numa(),
                    gpu.trouble().isEmpty(),
                    Gpu.SHIM,
                    gpu.links()));
            indexes.add(gpu.index());
            uuids.add(gpu.uuid());
        }
        for (Gpu gone : before.map(Inventory::gpus).orElse(List.of())) {
            if (!uuids.contains(gone.uuid())) {
                int index = gone.index();
                while (!indexes.add(index)) {
                    index = (index + 1) % 1024; // NVML numbers the others anew
                }
                gpus.add(unhealthy(gone, index));
            }
        }
        gpus.sort(Comparator.comparing(Gpu::index));
        return new Inventory(visibleDevices, wishes.memoryScaling(), wishes.coreScaling(), wishes.slots(), gpus);
    }

    /** The slots of all its GPUs, of which the unhealthy ones' share is out of use. */
    public static AdvertisedSlots offer(Inventory inventory) {
        int unhealthy =
                (int) inventory.gpus().stream().filter(gpu -> !gpu.healthy()).count();
        return new AdvertisedSlots(inventory.gpus().size() * inventory.slots(), unhealthy * inventory.slots());
    }

    /** The same GPUs with other words about them. */
    public static List<PhysicalGpu> allTroubled(Inventory inventory, String trouble) {
        return inventory.gpus().stream()
                .map(gpu -> new PhysicalGpu(
                        gpu.uuid(), gpu.index(), gpu.model(), gpu.memoryMiB(), gpu.numa(), trouble, gpu.links()))
                .collect(Collectors.toList());
    }

    private static Gpu unhealthy(Gpu gpu, int index) {
        return new Gpu(
                gpu.uuid(),
                index,
                gpu.model(),
                gpu.memoryMiB(),
                gpu.contextMiB(),
                gpu.numa(),
                false,
                gpu.mode(),
                gpu.links());
    }
}
