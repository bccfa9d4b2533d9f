package io.aliquot.simulator;

import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.Placement;
import io.aliquot.api.Scaling;
import io.aliquot.api.VisibleDevices;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.placement.HostResources;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.UUID;
import java.util.stream.IntStream;

/**
 * A node that shares its GPUs.
 *
 * @param facts as the scheduler would know them
 * @param own what pods that belong to it request, such as a DaemonSet's
 */
record Node(String name, Sharing facts, HostResources own) {
    /** The GPUs of a node of which only their number and kind are known. */
    record Gpus(int count, String model, int memoryMiB, int slots) {}

    /** A node with such GPUs. */
    static Node of(String name, Gpus gpus, HostResources allocatable) {
        return new Node(name, new Sharing(gpus(name, gpus), Placement.BINPACK, allocatable), HostResources.NONE);
    }

    /** GPUs that are all alike; UUIDs are made up from their node's name. */
    static Inventory gpus(String name, Gpus gpus) {
        return new Inventory(
                new VisibleDevices("{uuid}"),
                Scaling.ONE,
                Scaling.ONE,
                gpus.slots(),
                IntStream.range(0, gpus.count())
                        .mapToObj(index -> new Gpu(
                                "GPU-" + UUID.nameUUIDFromBytes((name + "/" + index).getBytes(StandardCharsets.UTF_8)),
                                index,
                                gpus.model(),
                                gpus.memoryMiB(),
                                0,
                                -1,
                                true,
                                Gpu.SHIM,
                                Map.of()))
                        .toList());
    }
}
