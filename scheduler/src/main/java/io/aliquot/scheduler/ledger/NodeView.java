package io.aliquot.scheduler.ledger;

import io.aliquot.scheduler.ledger.NodeFacts.Unavailable;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuInfo;
import java.util.List;
import java.util.Set;

/**
 * A snapshot of a node.
 *
 * @param agentReady whether its agent answers the kubelet
 * @param gpus free capacity of every GPU that it shares; empty for an unavailable node
 * @param holdings in no order
 */
public record NodeView(String name, NodeFacts facts, boolean agentReady, List<GpuInfo> gpus, List<Holding> holdings) {
    public NodeView {
        gpus = List.copyOf(gpus);
        holdings = List.copyOf(holdings);
    }

    /** The GPUs with what would be free if these pods held nothing. */
    public List<GpuInfo> gpusWithout(Set<String> uids) {
        List<Holding> removed = holdings.stream()
                .filter(holding -> uids.contains(holding.pod().uid()))
                .toList();
        return removed.isEmpty()
                ? gpus
                : gpus.stream().map(gpu -> without(gpu, removed, uids)).toList();
    }

    private GpuInfo without(GpuInfo gpu, List<Holding> removed, Set<String> uids) {
        String uuid = gpu.gpu().uuid();
        GpuAmount all = gpu.allocated();
        long memoryMiB = all.memoryMiB();
        int cores = all.cores();
        int slots = all.slots();
        for (Holding holding : removed) {
            GpuAmount amount = holding.perGpu().getOrDefault(uuid, GpuAmount.NOTHING);
            memoryMiB -= amount.memoryMiB();
            cores -= amount.cores();
            slots -= amount.slots();
        }
        if (slots == all.slots()) {
            return gpu;
        }
        // A whole card that is reserved for a preemptor overlaps with its victims.
        boolean exclusive = all.exclusive()
                && holdings.stream()
                        .anyMatch(holding -> !uids.contains(holding.pod().uid())
                                && holding.perGpu()
                                        .getOrDefault(uuid, GpuAmount.NOTHING)
                                        .exclusive());
        return new GpuInfo(gpu.capacity(), new GpuAmount(memoryMiB, cores, slots, exclusive));
    }

    /** Why the node takes no pods now; empty if it takes pods. */
    public String unavailableReason() {
        if (facts instanceof Unavailable unavailable) {
            return unavailable.reason();
        }
        return agentReady ? "" : NodeAccount.AGENT_NOT_READY.reason();
    }
}
