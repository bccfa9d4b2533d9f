package io.aliquot.deviceplugin.usage;

import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.deviceplugin.attribution.ContainerName;
import io.aliquot.deviceplugin.attribution.Limits;
import io.aliquot.deviceplugin.nvml.GpuUsage;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalLong;

/**
 * How this node's GPUs are used, and by which containers.
 *
 * @param gpus those that answer
 * @param containers those that hold vGPUs, one element for each container and each GPU that it uses
 */
public record NodeUsage(List<OfGpu> gpus, List<OfContainer> containers) {
    static final NodeUsage NONE = new NodeUsage(List.of(), List.of());

    public NodeUsage {
        gpus = List.copyOf(gpus);
        containers = List.copyOf(containers);
    }

    /**
     * A GPU.
     *
     * @param sharedBytes memory of the processes of containers that hold vGPUs
     * @param otherBytes memory of all other processes: the host's, those of privileged pods and of other device plugins
     */
    public record OfGpu(GpuUsage nvml, long sharedBytes, long otherBytes) {}

    /**
     * What a container uses of a GPU.
     *
     * @param podUid the pod's; empty as long as the container has had no process on a GPU
     * @param slot the one that names the container's region; empty if it is not known, as that of an init container
     * @param uuid the GPU's
     * @param nvmlBytes memory of the container's processes as NVML says, contexts included; empty where it has no figure
     * @param chargedBytes memory that the shim has charged to the container's living processes; empty if the container's
     *     region is not known, as that of an init container, or not readable
     * @param unattributedBytes memory that NVML shows beyond the charges: CUDA contexts, code, and what bypasses the shim;
     *     empty where NVML has no figure
     * @param peakBytes the largest use since this agent or the container has started
     * @param gpuSeconds GPU time since this agent or the container has started
     * @param utilization part of the time since the sample before in which the container used the GPU, 0 to 1; empty if NVML
     *     has no utilization of this GPU, as in MIG mode
     * @param throttledSeconds for which launches were throttled, as the container says
     * @param denied how often the limit refused memory, as the container says
     * @param processes that use the GPU
     */
    public record OfContainer(
            ContainerName container,
            String podUid,
            Optional<String> slot,
            String uuid,
            OptionalLong nvmlBytes,
            OptionalLong chargedBytes,
            OptionalLong unattributedBytes,
            long peakBytes,
            double gpuSeconds,
            OptionalDouble utilization,
            double throttledSeconds,
            long denied,
            int processes) {
        /** The container's limit on this GPU; empty if the scheduler has not said that of this pod. */
        public Optional<Limit> limit(Limits limits) {
            return limits.find(container, uuid)
                    .filter(limit ->
                            podUid.isEmpty() || podUid.equals(limit.container().uid()));
        }
    }
}
