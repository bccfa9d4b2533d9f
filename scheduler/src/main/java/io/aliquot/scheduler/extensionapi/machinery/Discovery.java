package io.aliquot.scheduler.extensionapi.machinery;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * The API's group, version and resources, as Kubernetes' discovery lists them. The verbs are get, list, watch and patch
 * and no others: garbage collector, quota and namespace controllers leave resources alone that they cannot delete.
 */
public final class Discovery {
    public static final String GROUP = "gpu.aliquot.io";
    public static final String VERSION = "v1alpha1";
    public static final String GROUP_VERSION = GROUP + "/" + VERSION;
    public static final String GROUP_PATH = "/apis/" + GROUP;
    public static final String VERSION_PATH = "/apis/" + GROUP_VERSION;
    public static final Set<String> PATHS = Set.of("/apis", GROUP_PATH, VERSION_PATH);

    private static final Map<String, String> NAMED_VERSION = Map.of("groupVersion", GROUP_VERSION, "version", VERSION);

    /** A resource; with a parent, the parent's subresource. */
    private record ApiResource(
            String name,
            String singular,
            String kind,
            boolean namespaced,
            List<String> shortNames,
            List<String> verbs) {
        boolean isSubresource() {
            return name.contains("/");
        }

        private String parent() {
            return name.substring(0, name.indexOf('/'));
        }
    }

    private static final List<String> READ = List.of("get", "list", "watch");
    private static final List<ApiResource> RESOURCES = List.of(
            new ApiResource("gpunodes", "gpunode", "GpuNode", false, List.of("gn"), READ),
            new ApiResource("gpus", "gpu", "Gpu", false, List.of(), READ),
            new ApiResource("gpuquotas", "gpuquota", "GpuQuota", true, List.of("gq"), READ),
            new ApiResource("gpus/history", "", "GpuHistory", false, List.of(), List.of("get")),
            new ApiResource(
                    "gpushares",
                    "gpushare",
                    "GpuShare",
                    true,
                    List.of("gsh"),
                    List.of("get", "list", "patch", "watch")),
            new ApiResource("gpushares/explain", "", "GpuShareExplanation", true, List.of(), List.of("get")),
            new ApiResource("gpushares/history", "", "GpuShareHistory", true, List.of(), List.of("get")));

    private Discovery() {}

    /** An APIGroupList. */
    public static Map<String, Object> groups() {
        return Map.of("kind", "APIGroupList", "apiVersion", "v1", "groups", List.of(fields()));
    }

    /** An APIGroup. */
    public static Map<String, Object> group() {
        return with(fields(), Map.of("kind", "APIGroup", "apiVersion", "v1"));
    }

    private static Map<String, Object> fields() {
        return Map.of("name", GROUP, "versions", List.of(NAMED_VERSION), "preferredVersion", NAMED_VERSION);
    }

    /** An APIResourceList. */
    public static Map<String, Object> resources() {
        return Map.of(
                "kind",
                "APIResourceList",
                "apiVersion",
                "v1",
                "groupVersion",
                GROUP_VERSION,
                "resources",
                RESOURCES.stream().map(Discovery::resource).toList());
    }

    private static Map<String, Object> resource(ApiResource resource) {
        Map<String, Object> all = Map.of(
                "name",
                resource.name(),
                "singularName",
                resource.singular(),
                "namespaced",
                resource.namespaced(),
                "kind",
                resource.kind(),
                "verbs",
                resource.verbs());
        return with(all, names(resource));
    }

    private static Map<String, Object> names(ApiResource resource) {
        if (resource.isSubresource()) {
            return Map.of();
        }
        return resource.shortNames().isEmpty()
                ? Map.of("categories", List.of("aliquot"))
                : Map.of("categories", List.of("aliquot"), "shortNames", resource.shortNames());
    }

    /** An APIGroupDiscoveryList: all of the above in one answer (KEP-3352). */
    public static Map<String, Object> aggregated() {
        Map<String, List<ApiResource>> subresources = RESOURCES.stream()
                .filter(ApiResource::isSubresource)
                .collect(Collectors.groupingBy(ApiResource::parent));
        List<Map<String, Object>> resources = RESOURCES.stream()
                .filter(resource -> !resource.isSubresource())
                .map(resource -> aggregated(resource, subresources.getOrDefault(resource.name(), List.of())))
                .toList();
        Map<String, Object> version = Map.of("version", VERSION, "freshness", "Current", "resources", resources);
        return Map.of(
                "kind",
                "APIGroupDiscoveryList",
                "apiVersion",
                "apidiscovery.k8s.io/v2",
                "metadata",
                Map.of(),
                "items",
                List.of(Map.of("metadata", Map.of("name", GROUP), "versions", List.of(version))));
    }

    private static Map<String, Object> aggregated(ApiResource resource, List<ApiResource> subresources) {
        Map<String, Object> all = Map.of(
                "resource",
                resource.name(),
                "responseKind",
                kind(resource),
                "scope",
                resource.namespaced() ? "Namespaced" : "Cluster",
                "singularResource",
                resource.singular(),
                "verbs",
                resource.verbs());
        List<Map<String, Object>> below = subresources.stream()
                .map(one -> Map.<String, Object>of(
                        "subresource",
                        one.name().substring(one.name().indexOf('/') + 1),
                        "responseKind",
                        kind(one),
                        "verbs",
                        one.verbs()))
                .toList();
        return with(with(all, names(resource)), below.isEmpty() ? Map.of() : Map.of("subresources", below));
    }

    private static Map<String, String> kind(ApiResource resource) {
        return Map.of("group", GROUP, "version", VERSION, "kind", resource.kind());
    }

    private static Map<String, Object> with(Map<String, Object> first, Map<String, Object> second) {
        return Stream.of(first, second)
                .flatMap(map -> map.entrySet().stream())
                .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue));
    }

    /** Whether an Accept header asks for aggregated discovery, and the media type of that answer. */
    public static Optional<String> aggregatedType(String accept) {
        return Arrays.stream(accept.split(",", -1))
                .map(String::strip)
                .filter(type -> type.startsWith("application/json;"))
                .filter(type -> Set.copyOf(List.of(type.split(";", -1)))
                        .containsAll(Set.of("g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList")))
                .findFirst()
                .map(type -> "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    }
}
