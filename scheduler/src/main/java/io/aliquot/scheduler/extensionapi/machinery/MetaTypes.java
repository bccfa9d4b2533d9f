package io.aliquot.scheduler.extensionapi.machinery;

import com.fasterxml.jackson.annotation.JsonClassDescription;
import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.annotation.JsonPropertyDescription;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** The JSON that objects of all kinds share (k8s.io/apimachinery, meta/v1). A field that is null is left out. */
public final class MetaTypes {
    private MetaTypes() {}

    /** An object of one of the group's kinds. */
    public interface ApiObject {
        Metadata metadata();

        /** The same object with another resourceVersion. */
        ApiObject withVersion(String version);
    }

    @JsonInclude(JsonInclude.Include.NON_NULL)
    @JsonClassDescription("Standard object metadata, as far as this group has it.")
    public record Metadata(
            @JsonPropertyDescription(
                    "Name of the pod, of the node, of the ResourceQuota, or of the GPU: its UUID in lower case.")
            String name,

            @JsonPropertyDescription("Namespace of the pod or ResourceQuota; absent for nodes and GPUs.") @Nullable
            String namespace,

            @JsonPropertyDescription(
                    "UID of the Pod, Node or ResourceQuota; for a GPU its UUID without the prefix GPU-.")
            String uid,

            @JsonPropertyDescription(
                    "resourceVersion of the Pod; for gpunodes and gpus, of the Node; for gpuquotas, up to which pods were seen.")
            String resourceVersion,

            @JsonPropertyDescription("Creation of the Pod or Node.") @Nullable
            String creationTimestamp,

            @JsonPropertyDescription("Labels of the Pod or Node.") @Nullable
            Map<String, String> labels) {
        public Metadata withVersion(String version) {
            return new Metadata(name, namespace, uid, version, creationTimestamp, labels);
        }
    }

    @JsonInclude(JsonInclude.Include.NON_NULL)
    @JsonClassDescription("Metadata of a list.")
    public record ListMetadata(
            @JsonPropertyDescription("Where a watch continues.")
            String resourceVersion,

            @JsonPropertyDescription("Parameter continue of the next page.")
            @JsonInclude(JsonInclude.Include.NON_NULL)
            @JsonProperty("continue")
            @Nullable
            String next,

            @JsonPropertyDescription("Number of objects on further pages.") @Nullable
            Long remainingItemCount) {}

    /** The items are made while they are written. */
    public record ObjectList(String apiVersion, String kind, ListMetadata metadata, Iterable<ApiObject> items) {}

    /** The rows are made while they are written. */
    public record Table(
            String kind, String apiVersion, ListMetadata metadata, List<Column> columnDefinitions, Iterable<Row> rows) {
        Table(ListMetadata metadata, List<Column> columnDefinitions, Iterable<Row> rows) {
            this("Table", "meta.k8s.io/v1", metadata, columnDefinitions, rows);
        }
    }

    /** A column of a table; one of priority 1 is shown by {@code -o wide} only. */
    public record Column(String name, String type, String format, String description, int priority) {}

    @JsonInclude(JsonInclude.Include.NON_NULL)
    public record Row(List<Object> cells, @Nullable Object object) {}

    public record PartialObjectMetadata(String kind, String apiVersion, Metadata metadata) {
        PartialObjectMetadata(Metadata metadata) {
            this("PartialObjectMetadata", "meta.k8s.io/v1", metadata);
        }
    }

    /** An event of a watch. */
    public record WatchEvent(String type, Object object) {}
}
