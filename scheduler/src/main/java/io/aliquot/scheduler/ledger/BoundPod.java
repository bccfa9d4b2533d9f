package io.aliquot.scheduler.ledger;

import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.placement.PodScopes;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;

/**
 * A bound pod that has not ended, as the API server shows it.
 *
 * @param version resourceVersion: a larger one is newer (KEP-5504, comparable resource versions)
 * @param shares what its containers hold, init containers first, in the order of their declaration
 * @param hostRequests CPU and memory that it requests
 * @param scopes what decides which quotas count it
 * @param priority value of the pod's PriorityClass
 * @param created time of creation
 * @param bound time of binding
 * @param grace the longer one of its own grace period and that of its deletion
 * @param leavesBy deadline by which its node ends it; {@link Instant#MAX} unless it is being deleted
 */
public record BoundPod(
        PodId id,
        String node,
        long version,
        List<ContainerShare> shares,
        HostResources hostRequests,
        PodScopes scopes,
        int priority,
        Instant created,
        Instant bound,
        Duration grace,
        Instant leavesBy) {
    public BoundPod {
        shares = List.copyOf(shares);
    }

    /** What it holds of each GPU, by UUID. */
    public Map<String, GpuAmount> perGpu() {
        return ContainerShare.perGpu(shares);
    }

    /** A request for the same amounts on any GPUs. */
    PodGpuRequest request() {
        List<ContainerGpuRequest> containers = shares.stream()
                .map(share -> new ContainerGpuRequest(
                        share.container(),
                        share.kind(),
                        gpuRequest(share.vgpus().list())))
                .toList();
        return PodGpuRequest.of(containers, Map.of(), false).withHostRequests(hostRequests);
    }

    private static GpuRequest gpuRequest(List<Vgpu> vgpus) {
        Vgpu vgpu = vgpus.get(0);
        return new GpuRequest(
                vgpus.size(), new MemoryRequest.Mebibytes(vgpu.memoryMiB()), vgpu.cores(), vgpu.exclusive());
    }

    /** Whether it is being deleted. */
    public boolean leaves() {
        return leavesBy.isBefore(Instant.MAX);
    }
}
