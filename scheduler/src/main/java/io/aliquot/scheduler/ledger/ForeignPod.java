package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.GpuAmount;
import java.util.Map;

/**
 * A running pod that another product placed, and what it holds by that product's own record. It has no claim, so Aliquot
 * never resizes or evicts it. Its amounts count while the node's agent lists it as a holder; an annotation alone, which
 * any user can write, neither takes nor frees capacity.
 *
 * @param perGpu amounts of each GPU, by UUID
 */
public record ForeignPod(PodId id, String node, Map<String, GpuAmount> perGpu) {
    public ForeignPod {
        perGpu = Map.copyOf(perGpu);
    }

    /** Namespace and name, as {@link io.aliquot.api.names.ForeignHolder#pod} has them. */
    String name() {
        return id.namespace() + "/" + id.name();
    }
}
