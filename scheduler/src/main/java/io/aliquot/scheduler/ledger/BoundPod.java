package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.placement.Amount;
import java.util.Map;

/**
 * A pod that has a node and has not ended, as the cluster tells.
 *
 * @param perGpu what it holds of each GPU, by UUID
 * @param requests of CPU and memory
 */
public record BoundPod(PodId id, String node, Map<String, Amount> perGpu, HostLoad requests) {
    public BoundPod {
        perGpu = Map.copyOf(perGpu);
    }
}
