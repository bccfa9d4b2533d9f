package io.aliquot.scheduler.ledger;

import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.scheduler.placement.GpuAmount;
import java.util.List;

/**
 * A running pod that another product placed, and what it holds by that product's own record. It has no claim, so Aliquot
 * never resizes or evicts it. Its amounts count while the node's agent lists it as a holder; an annotation alone, which
 * any user can write, neither takes nor frees capacity.
 *
 * @param vgpus of all its containers
 */
public record ForeignPod(PodId id, String node, List<ForeignVgpu> vgpus) {
    public ForeignPod {
        vgpus = List.copyOf(vgpus);
    }

    /**
     * What a container holds of a GPU.
     *
     * @param gpu the UUID
     * @param recorded by the other product, in an annotation that the pod's owner can rewrite
     * @param requested by the container's limits, which cannot change; the larger of the two counts
     */
    public record ForeignVgpu(String gpu, GpuAmount recorded, MemoryRequest requested) {
        /** What counts on a GPU with this memory. */
        GpuAmount on(int cardMiB) {
            return new GpuAmount(
                    Math.max(recorded.memoryMiB(), requested.on(cardMiB)),
                    recorded.cores(),
                    recorded.slots(),
                    recorded.exclusive());
        }
    }

    /** Namespace and name, as {@link io.aliquot.api.nodes.ForeignHolder#pod} has them. */
    String name() {
        return id.namespace() + "/" + id.name();
    }
}
