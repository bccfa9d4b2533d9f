package io.aliquot.api.nodes;

import static io.aliquot.api.format.FormatException.expect;

import io.aliquot.api.format.GpuUuids;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * One physical GPU of a node's {@link Inventory}, or an instance of one.
 *
 * @param uuid as NVML prints it
 * @param index NVML's index on the node, 0 to 1023
 * @param model NVML's product name, at most 200 characters
 * @param memoryMiB its physical device memory, 1 to {@value #LARGEST_MIB}; 0 of an unhealthy GPU whose memory NVML has
 *     never told, which has no capacity
 * @param contextMiB device memory of one CUDA context on this model, in MiB; 0: not measured
 * @param numa its NUMA domain, 0 to 1023; -1: unknown
 * @param health whether it may get new vGPUs
 * @param mode what enforces the limits: always {@code shim}
 * @param links the other GPU's UUID to the link to it; a missing one is unknown
 * @param heldBy pods that got it from another device plugin, at most {@value #MOST_HOLDERS}; as long as there is one, the
 *     GPU gets no vGPUs
 * @param kind whether it is a card or an instance
 */
public record Gpu(
        String uuid,
        int index,
        String model,
        int memoryMiB,
        int contextMiB,
        int numa,
        GpuHealth health,
        String mode,
        Map<String, Link> links,
        List<ForeignHolder> heldBy,
        GpuKind kind) {
    /** 16 TiB: more than any GPU has; keeps 64-bit sums of bytes far from overflow. */
    public static final int LARGEST_MIB = 1 << 24;

    public static final String SHIM = "shim";
    public static final GpuHealth HEALTHY = new GpuHealth.Healthy();

    /** Time-slicing may give a GPU to hundreds of pods; these are enough to say why it is not shared. */
    public static final int MOST_HOLDERS = 16;

    /** A card that no pod holds through another device plugin. */
    public Gpu(
            String uuid,
            int index,
            String model,
            int memoryMiB,
            int contextMiB,
            int numa,
            GpuHealth health,
            String mode,
            Map<String, Link> links) {
        this(uuid, index, model, memoryMiB, contextMiB, numa, health, mode, links, List.of(), GpuKind.CARD);
    }

    public Gpu {
        GpuUuids.check(uuid);
        expect(index >= 0 && index < 1024, "an index from 0 to 1023", index);
        expect(!model.isBlank() && model.length() <= 200, "a model's name", model);
        expect(
                memoryMiB >= (health.healthy() ? 1 : 0) && memoryMiB <= LARGEST_MIB,
                "memoryMiB from 1 to " + LARGEST_MIB,
                memoryMiB);
        expect(contextMiB >= 0 && contextMiB <= memoryMiB, "contextMiB from 0 to memoryMiB", contextMiB);
        expect(numa >= -1 && numa < 1024, "a NUMA domain from -1 (unknown) to 1023", numa);
        expect(mode.equals(SHIM), "mode shim", mode);
        links = Map.copyOf(links);
        links.keySet().forEach(GpuUuids::check);
        expect(heldBy.size() <= MOST_HOLDERS, "at most " + MOST_HOLDERS + " holders", heldBy.size());
        heldBy = List.copyOf(heldBy);
    }

    /** Whether it may get new vGPUs. */
    public boolean healthy() {
        return health.healthy();
    }

    /** Whether vGPUs can be made of it, now or once it is healthy. */
    public boolean hasCapacity() {
        return memoryMiB > 0;
    }

    /** The same GPU with another health. */
    public Gpu withHealth(GpuHealth health) {
        return new Gpu(uuid, index, model, memoryMiB, contextMiB, numa, health, mode, links, heldBy, kind);
    }

    /** The same GPU with other holders; of more than {@value #MOST_HOLDERS} only the first. */
    public Gpu withHolders(List<ForeignHolder> holders) {
        List<ForeignHolder> kept =
                holders.stream().sorted().distinct().limit(MOST_HOLDERS).toList();
        return new Gpu(uuid, index, model, memoryMiB, contextMiB, numa, health, mode, links, kept, kind);
    }

    /** The same GPU with another {@link #index}. */
    public Gpu withIndex(int index) {
        return new Gpu(uuid, index, model, memoryMiB, contextMiB, numa, health, mode, links, heldBy, kind);
    }

    /** What it is if it is an instance; empty for a card. */
    public Optional<GpuKind.MigInstance> instance() {
        return kind instanceof GpuKind.MigInstance instance ? Optional.of(instance) : Optional.empty();
    }
}
