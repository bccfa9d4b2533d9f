package io.aliquot.scheduler.extensionapi.machinery;

import com.fasterxml.jackson.annotation.JsonInclude;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/**
 * The API's group, version and resources, as Kubernetes' discovery lists them. The verbs are get, list, watch and patch
 * and no others: garbage collector, quota and namespace controllers leave resources alone that they cannot delete. The API
 * server makes aggregated discovery of the list of resources (k8s.io/kube-aggregator, pkg/apiserver/handler_discovery.go).
 */
public final class Discovery {
    public static final String GROUP = "gpu.aliquot.io";
    public static final String VERSION = "v1alpha1";
    public static final String GROUP_VERSION = GROUP + "/" + VERSION;
    public static final String GROUP_PATH = "/apis/" + GROUP;
    public static final String VERSION_PATH = "/apis/" + GROUP_VERSION;
    public static final Set<String> PATHS = Set.of("/apis", GROUP_PATH, VERSION_PATH);

    private static final Map<String, String> NAMED_VERSION = Map.of("groupVersion", GROUP_VERSION, "version", VERSION);

    /** An APIResource; the name of a subresource begins with its parent's. */
    private record ApiResource(
            String name,
            String singularName,
            String kind,
            boolean namespaced,
            List<String> verbs,
            @JsonInclude(JsonInclude.Include.NON_EMPTY) List<String> categories,
            @JsonInclude(JsonInclude.Include.NON_EMPTY) List<String> shortNames) {
        private static ApiResource of(String kind, boolean namespaced, List<String> verbs, String... shortNames) {
            String singular = kind.toLowerCase(Locale.ROOT);
            return new ApiResource(
                    singular + "s", singular, kind, namespaced, verbs, List.of("aliquot"), List.of(shortNames));
        }

        private static ApiResource below(String name, String kind, boolean namespaced) {
            return new ApiResource(name, "", kind, namespaced, List.of("get"), List.of(), List.of());
        }
    }

    private static final List<String> READ = List.of("get", "list", "watch");
    private static final List<ApiResource> RESOURCES = List.of(
            ApiResource.of("GpuNode", false, READ, "gn"),
            ApiResource.of("Gpu", false, READ),
            ApiResource.of("GpuQuota", true, READ, "gq"),
            ApiResource.below("gpus/history", "GpuHistory", false),
            ApiResource.of("GpuShare", true, List.of("get", "list", "patch", "watch"), "gsh"),
            ApiResource.below("gpushares/explain", "GpuShareExplanation", true),
            ApiResource.below("gpushares/history", "GpuShareHistory", true));

    private Discovery() {}

    /** An APIGroupList. */
    public static Map<String, Object> groups() {
        return Map.of("kind", "APIGroupList", "apiVersion", "v1", "groups", List.of(group()));
    }

    /** An APIGroup. */
    public static Map<String, Object> group() {
        return Map.of(
                "kind",
                "APIGroup",
                "apiVersion",
                "v1",
                "name",
                GROUP,
                "versions",
                List.of(NAMED_VERSION),
                "preferredVersion",
                NAMED_VERSION);
    }

    /** An APIResourceList. */
    public static Map<String, Object> resources() {
        return Map.of(
                "kind", "APIResourceList", "apiVersion", "v1", "groupVersion", GROUP_VERSION, "resources", RESOURCES);
    }
}
