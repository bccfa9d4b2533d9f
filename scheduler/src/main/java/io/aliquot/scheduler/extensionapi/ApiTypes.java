package io.aliquot.scheduler.extensionapi;

import com.fasterxml.jackson.annotation.JsonInclude;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The JSON of the objects; the OpenAPI document describes it for users, with units and ranges. A field that is null is
 * left out.
 */
final class ApiTypes {
    private ApiTypes() {}

    /** An object of one of the three kinds. */
    sealed interface ApiObject {
        Metadata metadata();
    }

    @JsonInclude(JsonInclude.Include.NON_NULL)
    record Metadata(
            String name,
            @Nullable String namespace,
            String uid,
            String resourceVersion,
            @Nullable String creationTimestamp,
            @Nullable Map<String, String> labels) {
        Metadata withVersion(String version) {
            return new Metadata(name, namespace, uid, version, creationTimestamp, labels);
        }
    }

    /** An amount of one resource; {@code free} is negative if the total was reduced below what pods hold. */
    record Amounts(long total, long allocated, long free) {
        static Amounts of(long total, long allocated) {
            return new Amounts(total, allocated, total - allocated);
        }

        Amounts plus(Amounts other) {
            return of(total + other.total, allocated + other.allocated);
        }
    }

    record GpuNode(String apiVersion, String kind, Metadata metadata, GpuNodeStatus status) implements ApiObject {
        GpuNode(Metadata metadata, GpuNodeStatus status) {
            this(Discovery.GROUP_VERSION, "GpuNode", metadata, status);
        }
    }

    /** The totals are those of all GPUs of the node. */
    @JsonInclude(JsonInclude.Include.NON_NULL)
    record GpuNodeStatus(
            boolean schedulable,
            @Nullable String reason,
            @Nullable String sharingMode,
            @Nullable String gpuPlacement,
            List<String> gpus,
            int healthyGpus,
            Amounts memoryMiB,
            Amounts cores,
            Amounts slots,
            int shares,
            @Nullable Long strandedMemoryMiB,
            List<Reservation> reservations) {}

    /** Capacity that the ledger counts as taken although the watch reports no bound pod for it. */
    record Reservation(String namespace, String pod, String uid, String state, List<ReservedAmount> gpus) {}

    record ReservedAmount(String gpu, long memoryMiB, int cores, int slots, boolean wholeCard) {}

    record Gpu(String apiVersion, String kind, Metadata metadata, GpuStatus status) implements ApiObject {
        Gpu(Metadata metadata, GpuStatus status) {
            this(Discovery.GROUP_VERSION, "Gpu", metadata, status);
        }
    }

    @JsonInclude(JsonInclude.Include.NON_NULL)
    record GpuStatus(
            String uuid,
            String nodeName,
            int index,
            String model,
            @Nullable Integer numaNode,
            boolean healthy,
            @Nullable String reason,
            @Nullable String since,
            boolean cordoned,
            boolean wholeCard,
            Amounts memoryMiB,
            Amounts cores,
            Amounts slots,
            int shares,
            @Nullable Long strandedMemoryMiB,
            @Nullable GpuUsage usage) {}

    /** What the node's agent measured of a GPU. */
    @JsonInclude(JsonInclude.Include.NON_NULL)
    record GpuUsage(
            @Nullable Long memoryMiB,
            @Nullable Long otherMemoryMiB,
            @Nullable Integer utilizationPercent,
            @Nullable Integer temperatureCelsius,
            @Nullable Integer powerWatts) {}

    record GpuShare(String apiVersion, String kind, Metadata metadata, GpuShareSpec spec, GpuShareStatus status)
            implements ApiObject {
        GpuShare(Metadata metadata, GpuShareSpec spec, GpuShareStatus status) {
            this(Discovery.GROUP_VERSION, "GpuShare", metadata, spec, status);
        }
    }

    /** What may change of a running pod. */
    record GpuShareSpec(List<ContainerSpec> containers) {}

    /** The amounts are those of each GPU; one is absent if the container's GPUs differ in it. */
    @JsonInclude(JsonInclude.Include.NON_NULL)
    record ContainerSpec(
            String name,
            @Nullable Integer memoryMiB,
            @Nullable Integer cores,
            @Nullable String policy) {}

    /** {@code memoryMiB} and {@code cores} are sums over the pod's GPUs; absent while the pod is Pending. */
    @JsonInclude(JsonInclude.Include.NON_NULL)
    record GpuShareStatus(
            String phase,
            @Nullable String reason,
            @Nullable String nodeName,
            int priority,
            int gpus,
            @Nullable Long memoryMiB,
            @Nullable Integer cores,
            @Nullable ShareUsage usage,
            List<ContainerStatus> containers) {}

    @JsonInclude(JsonInclude.Include.NON_NULL)
    record ContainerStatus(String name, @Nullable ContainerRequest requested, List<GpuPart> gpus) {}

    /** What a Pending container requests of each of its GPUs. */
    @JsonInclude(JsonInclude.Include.NON_NULL)
    record ContainerRequest(
            int gpus, @Nullable Integer memoryMiB, @Nullable Integer memoryPercent, int cores, boolean wholeCard) {}

    /** What a container holds of one GPU. */
    @JsonInclude(JsonInclude.Include.NON_NULL)
    record GpuPart(
            String uuid,
            int memoryMiB,
            int cores,
            String policy,
            int priority,
            boolean wholeCard,
            @Nullable ShareUsage usage) {}

    /** What the node's agent measured of a container on a GPU, or of all containers of a pod. */
    @JsonInclude(JsonInclude.Include.NON_NULL)
    record ShareUsage(
            @Nullable Long memoryMiB,
            @Nullable Integer utilizationPercent,
            @Nullable Integer processes,
            @Nullable Long deniedAllocations,
            @Nullable Double throttledSeconds,
            @Nullable String lastActive) {}

    static ApiObject withVersion(ApiObject object, String version) {
        return switch (object) {
            case GpuNode node -> new GpuNode(node.metadata().withVersion(version), node.status());
            case Gpu gpu -> new Gpu(gpu.metadata().withVersion(version), gpu.status());
            case GpuShare share -> new GpuShare(share.metadata().withVersion(version), share.spec(), share.status());
        };
    }

    @JsonInclude(JsonInclude.Include.NON_NULL)
    record ListMetadata(
            String resourceVersion,

            @JsonInclude(JsonInclude.Include.NON_NULL)
            @com.fasterxml.jackson.annotation.JsonProperty("continue")
            @Nullable
            String next,

            @Nullable Long remainingItemCount) {}

    /** The items are made while they are written. */
    record ObjectList(String apiVersion, String kind, ListMetadata metadata, Iterable<ApiObject> items) {}

    /** The rows are made while they are written. */
    record Table(
            String kind, String apiVersion, ListMetadata metadata, List<Column> columnDefinitions, Iterable<Row> rows) {
        Table(ListMetadata metadata, List<Column> columnDefinitions, Iterable<Row> rows) {
            this("Table", "meta.k8s.io/v1", metadata, columnDefinitions, rows);
        }
    }

    /** A column of a table; one of priority 1 is shown by {@code -o wide} only. */
    record Column(String name, String type, String format, String description, int priority) {}

    @JsonInclude(JsonInclude.Include.NON_NULL)
    record Row(List<Object> cells, @Nullable Object object) {}

    record PartialObjectMetadata(String kind, String apiVersion, Metadata metadata) {
        PartialObjectMetadata(Metadata metadata) {
            this("PartialObjectMetadata", "meta.k8s.io/v1", metadata);
        }
    }

    /** An event of a watch. */
    record WatchEvent(String type, Object object) {}
}
