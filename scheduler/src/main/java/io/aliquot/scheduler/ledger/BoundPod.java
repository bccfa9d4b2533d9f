package io.aliquot.scheduler.ledger;

import io.aliquot.api.GpuRequest;
import io.aliquot.api.MemoryRequest;
import io.aliquot.api.Vgpu;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;

/**
 * A pod that has a node and has not ended, as the cluster tells.
 *
 * @param version of the API's object: a larger one is newer (KEP-5504, comparable resource versions)
 * @param shares in the order of the containers' declaration, init containers first
 * @param requests of CPU and memory
 * @param priority Kubernetes' (the priority class's value), by which pods preempt others
 * @param created when the pod was
 * @param bound when it got its node
 * @param grace that its containers get to end in, the longest that was told
 * @param leavesBy when it is gone at the latest, if its node does what it is told; {@link Instant#MAX} while it stays
 * @param fence under which it was bound, {@link io.aliquot.api.Fence} as text; empty without GPUs
 */
public record BoundPod(
        PodId id,
        String node,
        long version,
        List<ContainerAllocation> shares,
        HostResources requests,
        int priority,
        Instant created,
        Instant bound,
        Duration grace,
        Instant leavesBy,
        String fence) {
    public BoundPod {
        shares = List.copyOf(shares);
    }

    /** What it holds of each GPU, by UUID. */
    public Map<String, GpuAmount> perGpu() {
        return ContainerAllocation.perGpu(shares);
    }

    /**
     * The same as the news of a pod of which more was known. A pod is deleted by force, with no grace at all, because its
     * node doesn't answer; and that keeps to the longer one which it may have heard of.
     */
    BoundPod after(BoundPod earlier) {
        return grace.compareTo(earlier.grace) >= 0
                ? this
                : new BoundPod(
                        id, node, version, shares, requests, priority, created, bound, earlier.grace, leavesBy, fence);
    }

    /** What a pod asks for that would get the same, wherever it goes. */
    PodGpuRequest ask() {
        List<ContainerGpuRequest> containers = shares.stream()
                .map(share -> new ContainerGpuRequest(
                        share.container(), share.kind(), request(share.vgpus().list())))
                .toList();
        return PodGpuRequest.of(containers, Map.of(), false).withHostRequests(requests);
    }

    private static GpuRequest request(List<Vgpu> vgpus) {
        Vgpu one = vgpus.get(0);
        return new GpuRequest(vgpus.size(), new MemoryRequest.Mebibytes(one.memoryMiB()), one.cores(), one.exclusive());
    }

    /** Whether it was told to end. */
    public boolean leaves() {
        return leavesBy.isBefore(Instant.MAX);
    }
}
