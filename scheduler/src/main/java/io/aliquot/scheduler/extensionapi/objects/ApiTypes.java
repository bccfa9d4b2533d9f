package io.aliquot.scheduler.extensionapi.objects;

import com.fasterxml.jackson.annotation.JsonClassDescription;
import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.annotation.JsonPropertyDescription;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.ApiObject;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.Metadata;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The JSON of the objects. The descriptions are for users: {@code OpenApi} makes the OpenAPI document from them. A field
 * that is null is left out.
 */
public final class ApiTypes {
    private ApiTypes() {}

    @JsonClassDescription("An amount of one resource.")
    public record Amounts(
            @JsonPropertyDescription("What the node offers to pods.")
            long total,

            @JsonPropertyDescription("What pods hold.") long allocated,

            @JsonPropertyDescription("Total less allocated; negative if the total was reduced below what pods hold.")
            long free) {
        static Amounts of(long total, long allocated) {
            return new Amounts(total, allocated, total - allocated);
        }

        Amounts plus(Amounts other) {
            return of(total + other.total, allocated + other.allocated);
        }
    }

    @JsonClassDescription("A node that shares its GPUs.")
    public record GpuNode(
            String apiVersion,
            String kind,

            @JsonPropertyDescription("Standard object metadata.")
            Metadata metadata,

            @JsonPropertyDescription("What is the case now.")
            GpuNodeStatus status)
            implements ApiObject {
        GpuNode(Metadata metadata, GpuNodeStatus status) {
            this(Discovery.GROUP_VERSION, "GpuNode", metadata, status);
        }

        @Override
        public GpuNode withVersion(String version) {
            return new GpuNode(metadata.withVersion(version), status);
        }
    }

    @JsonInclude(JsonInclude.Include.NON_NULL)
    @JsonClassDescription("What a node's GPUs offer and what pods hold of them, in sum.")
    public record GpuNodeStatus(
            @JsonPropertyDescription("Whether the node takes new GPU pods.")
            boolean schedulable,

            @JsonPropertyDescription("Why the node takes no pods; absent if it does.") @Nullable
            String reason,

            @JsonPropertyDescription("What of the GPUs is shared; absent if nothing is.") @Nullable
            String sharingMode,

            @JsonPropertyDescription("Policy that selects GPUs for pods that name none.") @Nullable
            String gpuPlacement,

            @JsonPropertyDescription("Names of the node's gpus, in the order of their indexes.")
            List<String> gpus,

            @JsonPropertyDescription("Number of healthy GPUs.")
            int healthyGpus,

            @JsonPropertyDescription("GPU memory in MiB.") Amounts memoryMiB,

            @JsonPropertyDescription("Compute in percent of a GPU: 100 is one GPU.")
            Amounts cores,

            @JsonPropertyDescription("Number of shares that fit on the GPUs.")
            Amounts slots,

            @JsonPropertyDescription("Number of shares that pods hold of the GPUs.")
            int shares,

            @JsonPropertyDescription("Free GPU memory in MiB that no share of a kind now in the cluster fits into.")
            @Nullable
            Long strandedMemoryMiB,

            @JsonPropertyDescription(
                    "What the scheduler concludes from the Node object; empty if there is nothing to say.")
            List<Condition> conditions,

            @JsonPropertyDescription(
                    "Capacity that is taken without a bound pod, as this replica of the scheduler knows it.")
            List<Reservation> reservations) {}

    @JsonClassDescription("A conclusion about an object.")
    public record Condition(
            @JsonPropertyDescription("What it is about, in CamelCase.")
            String type,

            @JsonPropertyDescription("True or False.") String status,

            @JsonPropertyDescription("Why, in one CamelCase word.")
            String reason,

            @JsonPropertyDescription("For the administrator: why, and what to do if the status is False.")
            String message) {}

    @JsonClassDescription("Capacity that the scheduler counts as taken although no bound pod is known for it.")
    public record Reservation(
            @JsonPropertyDescription("Namespace of the pod.")
            String namespace,

            @JsonPropertyDescription("Name of the pod.") String pod,
            @JsonPropertyDescription("UID of the pod.") String uid,

            @JsonPropertyDescription(
                    "expected: between filter and bind; kept: for a preemptor; binding: a Binding was sent; lingering: the pod was deleted by force.")
            String state,

            @JsonPropertyDescription("What is reserved of each GPU.")
            List<ReservedAmount> gpus) {}

    @JsonClassDescription("A held or reserved part of one GPU.")
    public record ReservedAmount(
            @JsonPropertyDescription("UUID of the GPU.") String gpu,
            @JsonPropertyDescription("GPU memory in MiB.") long memoryMiB,

            @JsonPropertyDescription("Compute in percent of a GPU.")
            int cores,

            @JsonPropertyDescription("Number of shares.") int slots,

            @JsonPropertyDescription("Whether the whole GPU is reserved.")
            boolean wholeCard) {}

    @JsonClassDescription("A GPU of such a node.")
    public record Gpu(
            String apiVersion,
            String kind,

            @JsonPropertyDescription("Standard object metadata.")
            Metadata metadata,

            @JsonPropertyDescription("What is the case now.")
            GpuStatus status)
            implements ApiObject {
        Gpu(Metadata metadata, GpuStatus status) {
            this(Discovery.GROUP_VERSION, "Gpu", metadata, status);
        }

        @Override
        public Gpu withVersion(String version) {
            return new Gpu(metadata.withVersion(version), status);
        }
    }

    @JsonInclude(JsonInclude.Include.NON_NULL)
    @JsonClassDescription("A GPU and what pods hold of it.")
    public record GpuStatus(
            @JsonPropertyDescription("UUID as NVML prints it.")
            String uuid,

            @JsonPropertyDescription("Node of the GPU.") String nodeName,

            @JsonPropertyDescription("Index of the GPU on its node.")
            int index,

            @JsonPropertyDescription("Model of the GPU.") String model,

            @JsonPropertyDescription("NUMA node; absent if unknown.") @Nullable
            Integer numaNode,

            @JsonPropertyDescription("Whether the GPU is healthy.")
            boolean healthy,

            @JsonPropertyDescription("What is wrong with an unhealthy GPU.") @Nullable
            String reason,

            @JsonPropertyDescription("When it became unhealthy, if the agent reports it.") @Nullable
            String since,

            @JsonPropertyDescription("Whether an administrator cordoned the GPU.")
            boolean cordoned,

            @JsonPropertyDescription("Whether a pod holds the whole GPU.")
            boolean wholeCard,

            @JsonPropertyDescription("GPU memory in MiB.") Amounts memoryMiB,

            @JsonPropertyDescription("Compute in percent of the GPU.")
            Amounts cores,

            @JsonPropertyDescription("Number of shares that fit on the GPU.")
            Amounts slots,

            @JsonPropertyDescription("Number of pods that hold a part of the GPU.")
            int shares,

            @JsonPropertyDescription("Free GPU memory in MiB that no share of a kind now in the cluster fits into.")
            @Nullable
            Long strandedMemoryMiB,

            @JsonPropertyDescription("What the node's agent measured; absent without news for a minute.") @Nullable
            GpuUsage usage) {}

    @JsonInclude(JsonInclude.Include.NON_NULL)
    @JsonClassDescription("What the node's agent measured of a GPU within the last minute.")
    public record GpuUsage(
            @JsonPropertyDescription("GPU memory in use, in MiB.") @Nullable
            Long memoryMiB,

            @JsonPropertyDescription("GPU memory in use outside of shares, in MiB.") @Nullable
            Long otherMemoryMiB,

            @JsonPropertyDescription("GPU utilization in percent.") @Nullable
            Integer utilizationPercent,

            @JsonPropertyDescription("Temperature in degrees Celsius.") @Nullable
            Integer temperatureCelsius,

            @JsonPropertyDescription("Power draw in watts.") @Nullable
            Integer powerWatts) {}

    @JsonClassDescription("A ResourceQuota that limits GPUs, and what pods hold of it.")
    public record GpuQuota(
            String apiVersion,
            String kind,

            @JsonPropertyDescription("Standard object metadata.")
            Metadata metadata,

            @JsonPropertyDescription("What is the case now.")
            GpuQuotaStatus status)
            implements ApiObject {
        GpuQuota(Metadata metadata, GpuQuotaStatus status) {
            this(Discovery.GROUP_VERSION, "GpuQuota", metadata, status);
        }

        @Override
        public GpuQuota withVersion(String version) {
            return new GpuQuota(metadata.withVersion(version), status);
        }
    }

    @JsonInclude(JsonInclude.Include.NON_NULL)
    @JsonClassDescription("What a ResourceQuota limits of GPUs; an amount that it does not limit is absent.")
    public record GpuQuotaStatus(
            @JsonPropertyDescription("GPU memory of all vGPUs, in MiB.") @Nullable
            QuotaPart memoryMiB,

            @JsonPropertyDescription("Compute of all vGPUs, in percent of a GPU.") @Nullable
            QuotaPart cores,

            @JsonPropertyDescription("Number of vGPUs.") @Nullable
            QuotaPart vgpus) {}

    @JsonClassDescription("What a quota allows of one amount, and what is used.")
    public record QuotaPart(
            @JsonPropertyDescription("The most that pods may hold together.")
            long hard,

            @JsonPropertyDescription("What pods that are bound or being bound hold.")
            long used) {}

    @JsonClassDescription("A pod that holds or requests a GPU.")
    public record GpuShare(
            String apiVersion,
            String kind,

            @JsonPropertyDescription("Standard object metadata.")
            Metadata metadata,

            @JsonPropertyDescription("What may change of a running pod.")
            GpuShareSpec spec,

            @JsonPropertyDescription("What is the case now.")
            GpuShareStatus status)
            implements ApiObject {
        GpuShare(Metadata metadata, GpuShareSpec spec, GpuShareStatus status) {
            this(Discovery.GROUP_VERSION, "GpuShare", metadata, spec, status);
        }

        @Override
        public GpuShare withVersion(String version) {
            return new GpuShare(metadata.withVersion(version), spec, status);
        }
    }

    @JsonClassDescription("What may change of a running pod: a patch of it resizes the pod without a restart.")
    public record GpuShareSpec(
            @JsonPropertyDescription("The containers that hold or request a GPU. A patch matches them by name.")
            List<ContainerSpec> containers) {}

    @JsonInclude(JsonInclude.Include.NON_NULL)
    @JsonClassDescription("What one container may use of each of its GPUs. What a patch leaves out stays as it is.")
    public record ContainerSpec(
            @JsonPropertyDescription("Name of a container that holds or requests a GPU.")
            String name,

            @JsonPropertyDescription(
                    "GPU memory in MiB of each GPU; absent if the container's GPUs differ, or if a Pending pod requests a percentage or a whole GPU.")
            @Nullable
            Integer memoryMiB,

            @JsonPropertyDescription(
                    "Compute in percent of each GPU; 0 for no limit. Absent if the container's GPUs differ.")
            @Nullable
            Integer cores,

            @JsonPropertyDescription(
                    "fixed: never more than its cores; elastic: also a part of what others leave idle; none: not limited.")
            @Nullable
            String policy) {}

    @JsonInclude(JsonInclude.Include.NON_NULL)
    @JsonClassDescription("What a pod holds or requests.")
    public record GpuShareStatus(
            @JsonPropertyDescription(
                    "Pending: no node yet; Bound; Terminating: being deleted, and it still holds its GPUs.")
            String phase,

            @JsonPropertyDescription(
                    "Why the pod is Pending: the explanation if the object is read alone, what kube-scheduler says in a list.")
            @Nullable
            String reason,

            @JsonPropertyDescription("Node of the pod; absent for a Pending one.") @Nullable
            String nodeName,

            @JsonPropertyDescription("Priority of the pod in Kubernetes.")
            int priority,

            @JsonPropertyDescription("Number of GPUs that the pod holds or requests.")
            int gpus,

            @JsonPropertyDescription(
                    "GPU memory in MiB that the pod holds: of its containers, the most that run at once. Absent for a Pending one.")
            @Nullable
            Long memoryMiB,

            @JsonPropertyDescription(
                    "Compute in percent of a GPU that the pod holds: of its containers, the most that run at once. Absent for a Pending one.")
            @Nullable
            Integer cores,

            @JsonPropertyDescription("What the pod holds of each GPU; absent for a Pending one.") @Nullable
            List<ReservedAmount> held,

            @JsonPropertyDescription("The sum of its containers' usage.") @Nullable
            ShareUsage usage,

            @JsonPropertyDescription("Its containers that hold or request a GPU.")
            List<ContainerStatus> containers) {}

    @JsonInclude(JsonInclude.Include.NON_NULL)
    @JsonClassDescription("What a container holds, or requests while the pod is Pending.")
    public record ContainerStatus(
            @JsonPropertyDescription("Name of the container.")
            String name,

            @JsonPropertyDescription("Of a Pending pod.") @Nullable
            ContainerRequest requested,

            @JsonPropertyDescription("What it holds of each GPU; empty for a Pending pod.")
            List<GpuPart> gpus) {}

    @JsonInclude(JsonInclude.Include.NON_NULL)
    @JsonClassDescription("What a container of a Pending pod requests of each of its GPUs.")
    public record ContainerRequest(
            @JsonPropertyDescription("Number of GPUs.") int gpus,

            @JsonPropertyDescription("GPU memory in MiB, if it is requested in MiB.") @Nullable
            Integer memoryMiB,

            @JsonPropertyDescription("GPU memory in percent of a GPU's, if it is requested so.") @Nullable
            Integer memoryPercent,

            @JsonPropertyDescription("Compute in percent of a GPU; 0 for no limit.")
            int cores,

            @JsonPropertyDescription("Whether whole GPUs are requested.")
            boolean wholeCard) {}

    @JsonInclude(JsonInclude.Include.NON_NULL)
    @JsonClassDescription("What a container holds of one GPU.")
    public record GpuPart(
            @JsonPropertyDescription("UUID of the GPU.") String uuid,
            @JsonPropertyDescription("GPU memory in MiB.") int memoryMiB,

            @JsonPropertyDescription("Compute in percent of the GPU; 0 for no limit.")
            int cores,

            @JsonPropertyDescription("Whether the container may use more compute than its cores.")
            String policy,

            @JsonPropertyDescription("Whether its GPU work goes before others', or after them.")
            String priority,

            @JsonPropertyDescription("Whether the container has the whole GPU.")
            boolean wholeCard,

            @JsonPropertyDescription("What the node's agent measured of the container on this GPU.") @Nullable
            ShareUsage usage) {}

    @JsonInclude(JsonInclude.Include.NON_NULL)
    @JsonClassDescription("What the node's agent measured within the last minute.")
    public record ShareUsage(
            @JsonPropertyDescription("GPU memory in use, in MiB.") @Nullable
            Long memoryMiB,

            @JsonPropertyDescription("GPU time in percent of a GPU.") @Nullable
            Integer utilizationPercent,

            @JsonPropertyDescription(
                    "Part of the cores that was left unused and that others used, in percent of a GPU.")
            @Nullable
            Integer lentPercent,

            @JsonPropertyDescription(
                    "Part of utilizationPercent that was beyond the cores, of time that others left unused.")
            @Nullable
            Integer borrowedPercent,

            @JsonPropertyDescription("Number of GPU processes.") @Nullable
            Integer processes,

            @JsonPropertyDescription("Number of allocations that were refused since the container started.") @Nullable
            Long deniedAllocations,

            @JsonPropertyDescription(
                    "Time for which the compute limit has delayed launches since the container started, in seconds, summed over its threads.")
            @Nullable
            Double throttledSeconds,

            @JsonPropertyDescription("The last time with GPU activity.") @Nullable
            String lastActive) {}
}
