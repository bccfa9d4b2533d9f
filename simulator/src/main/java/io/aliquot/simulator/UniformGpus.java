package io.aliquot.simulator;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.VisibleDevices;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.UUID;
import java.util.stream.IntStream;

/** GPUs of a node of which only the number and the model are known. */
record UniformGpus(int count, String model, int memoryMiB, int slots) {
    /** The inventory of a node with these GPUs; their UUIDs derive from the node's name. */
    Inventory inventory(String node) {
        return new Inventory(
                new VisibleDevices("{uuid}"),
                Scaling.ONE,
                Scaling.ONE,
                slots,
                IntStream.range(0, count)
                        .mapToObj(index -> new Gpu(
                                "GPU-" + UUID.nameUUIDFromBytes((node + "/" + index).getBytes(StandardCharsets.UTF_8)),
                                index,
                                model,
                                memoryMiB,
                                0,
                                -1,
                                Gpu.HEALTHY,
                                Gpu.SHIM,
                                Map.of()))
                        .toList());
    }
}
