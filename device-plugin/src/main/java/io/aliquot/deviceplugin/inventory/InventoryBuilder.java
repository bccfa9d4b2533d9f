package io.aliquot.deviceplugin.inventory;

import io.aliquot.api.Gpu;
import io.aliquot.api.GpuHealth;
import io.aliquot.api.Inventory;
import io.aliquot.api.VisibleDevices;
import io.aliquot.deviceplugin.kubelet.AdvertisedSlots;
import io.aliquot.deviceplugin.node.NodeSettings;
import io.aliquot.deviceplugin.nvml.PhysicalGpu;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/**
 * Builds the inventory from the GPUs that NVML lists and those of the previous inventory.
 *
 * <p>A GPU that NVML no longer lists stays in the inventory as unhealthy. Pods may still hold shares of it, and the
 * node's extended resources must not become less than is allocated, or a restarted kubelet rejects running pods of
 * healthy GPUs. The GPU leaves the inventory with the Node object, which an admin deletes after draining a node to take
 * a GPU out.
 */
public final class InventoryBuilder {
    private static final int CONTEXT_NOT_MEASURED = 0;
    private static final int INDEXES = 1024;
    private static final String NOT_LISTED = "NVML no longer lists it";

    private InventoryBuilder() {}

    /**
     * Builds an inventory.
     *
     * @param detected the GPUs that NVML lists
     * @param previous the GPUs of the previous inventory
     * @param now since when a GPU is unhealthy that was healthy before
     */
    public static Inventory build(
            List<PhysicalGpu> detected,
            List<Gpu> previous,
            VisibleDevices visibleDevices,
            NodeSettings settings,
            Instant now) {
        List<Gpu> gpus = new ArrayList<>();
        Set<Integer> indexes = new HashSet<>();
        Set<String> uuids = new HashSet<>();
        for (PhysicalGpu gpu : detected) {
            gpus.add(new Gpu(
                    gpu.uuid(),
                    gpu.index(),
                    gpu.model(),
                    gpu.memoryMiB(),
                    CONTEXT_NOT_MEASURED,
                    gpu.numa(),
                    health(gpu.health().unhealthyReason(), earlier(previous, gpu.uuid()), now),
                    Gpu.SHIM,
                    gpu.links()));
            indexes.add(gpu.index());
            uuids.add(gpu.uuid());
        }
        for (Gpu missing : previous) {
            if (!uuids.contains(missing.uuid())) {
                int index = missing.index();
                while (!indexes.add(index)) {
                    index = (index + 1) % INDEXES; // NVML has renumbered the others
                }
                gpus.add(withIndex(missing, index).withHealth(health(Optional.of(NOT_LISTED), missing.health(), now)));
            }
        }
        gpus.sort(Comparator.comparing(Gpu::index));
        return new Inventory(visibleDevices, settings.memoryScaling(), settings.coreScaling(), settings.slots(), gpus);
    }

    /** The slots to advertise to the kubelet: those of all GPUs, with the slots of unhealthy GPUs unhealthy. */
    public static AdvertisedSlots slots(Inventory inventory) {
        int unhealthy =
                (int) inventory.gpus().stream().filter(gpu -> !gpu.healthy()).count();
        return new AdvertisedSlots(inventory.gpus().size() * inventory.slots(), unhealthy * inventory.slots());
    }

    /** The GPUs of an inventory as NVML listed them, all unhealthy for one reason. */
    public static List<PhysicalGpu> allUnhealthy(List<Gpu> gpus, String reason) {
        return gpus.stream()
                .map(gpu -> new PhysicalGpu(
                        gpu.uuid(),
                        gpu.index(),
                        gpu.model(),
                        gpu.memoryMiB(),
                        gpu.numa(),
                        new io.aliquot.deviceplugin.nvml.GpuHealth.Unhealthy(reason),
                        gpu.links()))
                .toList();
    }

    private static GpuHealth earlier(List<Gpu> previous, String uuid) {
        return previous.stream()
                .filter(gpu -> gpu.uuid().equals(uuid))
                .map(Gpu::health)
                .findAny()
                .orElse(Gpu.HEALTHY);
    }

    private static GpuHealth health(Optional<String> reason, GpuHealth earlier, Instant now) {
        return reason.<GpuHealth>map(text -> new GpuHealth.Unhealthy(
                        shortened(text),
                        earlier.unhealthy().map(GpuHealth.Unhealthy::since).orElse(now)))
                .orElse(Gpu.HEALTHY);
    }

    private static String shortened(String reason) {
        String printable = reason.replaceAll("\\p{Cntrl}", " ");
        return printable.length() <= GpuHealth.Unhealthy.LONGEST_REASON
                ? printable
                : printable.substring(0, GpuHealth.Unhealthy.LONGEST_REASON - 1) + "…";
    }

    private static Gpu withIndex(Gpu gpu, int index) {
        return new Gpu(
                gpu.uuid(),
                index,
                gpu.model(),
                gpu.memoryMiB(),
                gpu.contextMiB(),
                gpu.numa(),
                gpu.health(),
                gpu.mode(),
                gpu.links(),
                gpu.heldBy());
    }
}
