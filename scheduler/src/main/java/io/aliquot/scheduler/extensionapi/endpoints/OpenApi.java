package io.aliquot.scheduler.extensionapi.endpoints;

import static io.aliquot.api.nodes.Gpu.LARGEST_MIB;

import com.fasterxml.jackson.annotation.JsonClassDescription;
import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.annotation.JsonPropertyDescription;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Priority;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.ListMetadata;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.Gpu;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuNode;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuQuota;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuShare;
import io.aliquot.scheduler.extensionapi.objects.GpuShareExplanation;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.RecordComponent;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Makes the description of the group, OpenAPI 3.0, for {@code kubectl explain}: the schemas from the records and the
 * descriptions of their components, the paths as the controllers serve them.
 */
public final class OpenApi {
    private static final String SCHEMA_PREFIX = "io.aliquot.gpu.v1alpha1.";
    private static final String SHARES = "/namespaces/{namespace}/gpushares";
    private static final List<Class<?>> KINDS = List.of(GpuNode.class, Gpu.class, GpuShare.class, GpuQuota.class);

    private static final List<Class<?>> NAMESPACED = List.of(GpuShare.class, GpuQuota.class);

    private static final Map<String, Object> STRING = Map.of("type", "string");
    private static final Map<String, Object> BOOLEAN = Map.of("type", "boolean");
    private static final Map<String, Object> OBJECT = Map.of("type", "object");
    private static final Map<String, Object> NOT_NEGATIVE = fields("type", "integer", "minimum", 0);
    private static final Map<String, Object> TIME = Map.of("format", "date-time");

    /** What the type of a component does not tell, by record and component. */
    private static final Map<String, Map<String, Object>> CONSTRAINTS = Map.ofEntries(
            Map.entry("Metadata.creationTimestamp", TIME),
            Map.entry("GpuStatus.since", TIME),
            Map.entry("ShareUsage.lastActive", TIME),
            Map.entry("Reservation.state", oneOf("expected", "kept", "binding", "lingering")),
            Map.entry("ContainerSpec.memoryMiB", fields("minimum", 1, "maximum", LARGEST_MIB)),
            Map.entry("ContainerSpec.cores", fields("minimum", 0, "maximum", 100)),
            Map.entry("ContainerSpec.policy", policies()),
            Map.entry("GpuPart.policy", policies()),
            Map.entry(
                    "GpuPart.priority",
                    oneOf(Arrays.stream(Priority.values()).map(Priority::print).toArray(String[]::new))),
            Map.entry("GpuShareStatus.phase", oneOf("Pending", "Bound", "Terminating")));

    private static final List<Object> LIST_PARAMETERS = List.of(
            query("limit", "Largest number of objects on a page.", NOT_NEGATIVE),
            query("continue", "metadata.continue of the page before.", STRING),
            query("labelSelector", "Selects by labels.", STRING),
            query("fieldSelector", "Selects by fields.", STRING),
            query("watch", "Streams changes.", BOOLEAN),
            query("resourceVersion", "Where a watch begins.", fields("type", "string", "pattern", "^[0-9]{1,18}$")),
            query("resourceVersionMatch", "NotOlderThan or Exact.", with(STRING, oneOf("NotOlderThan", "Exact"))),
            query("allowWatchBookmarks", "Asks for bookmarks.", BOOLEAN),
            query("sendInitialEvents", "A watch begins with all objects.", BOOLEAN),
            query("timeoutSeconds", "Ends a watch.", NOT_NEGATIVE));

    private final Map<String, Object> paths = new LinkedHashMap<>();
    private final Map<String, Object> schemas = new LinkedHashMap<>();

    private OpenApi() {}

    /** The document, always in the same order. */
    static Map<String, Object> document() {
        var made = new OpenApi();
        made.addPaths();
        made.addSchemas();
        return fields(
                "openapi",
                "3.0.0",
                "info",
                fields("title", "Aliquot", "version", Discovery.VERSION),
                "paths",
                made.paths,
                "components",
                fields(
                        "schemas",
                        made.schemas,
                        "responses",
                        fields("Failure", fields("description", "A failure.", "content", json(ref("Status"))))));
    }

    private void addPaths() {
        for (Class<?> type : KINDS) {
            String kind = type.getSimpleName();
            String path = (NAMESPACED.contains(type) ? "/namespaces/{namespace}/" : "/") + plural(type);
            add(path, "list", "list" + kind, "Lists or watches objects.", kind, ref(kind + "List"), LIST_PARAMETERS);
            add(path + "/{name}", "get", "get" + kind, "Reads an object.", kind, ref(kind), List.of());
        }
        for (Class<?> type : NAMESPACED) {
            String kind = type.getSimpleName();
            add(
                    "/" + plural(type),
                    "list",
                    "list" + kind + "ForAllNamespaces",
                    "Lists or watches those of all namespaces.",
                    kind,
                    ref(kind + "List"),
                    LIST_PARAMETERS);
        }
        add(
                SHARES + "/{name}",
                "patch",
                "patchGpuShare",
                "Resizes a running pod.",
                "GpuShare",
                ref("GpuShare"),
                List.of(query("dryRun", "All: changes nothing.", with(STRING, oneOf("All")))));
        add(
                "/gpus/{name}/history",
                "get",
                "getGpuHistory",
                "The last minutes of a GPU and of the containers on it.",
                "GpuHistory",
                OBJECT,
                List.of());
        add(
                SHARES + "/{name}/history",
                "get",
                "getGpuShareHistory",
                "The last minutes of a pod on each of its GPUs, by UUID.",
                "GpuShareHistory",
                fields("type", "object", "additionalProperties", OBJECT),
                List.of());
        add(
                SHARES + "/{name}/explain",
                "get",
                "getGpuShareExplanation",
                "Why a pod is Pending, or what it holds.",
                "GpuShareExplanation",
                ref("GpuShareExplanation"),
                List.of(query("node", "Name of a node, of which each GPU is examined.", STRING)));
    }

    private void add(
            String path,
            String action,
            String id,
            String description,
            String kind,
            Map<String, Object> answer,
            List<Object> parameters) {
        var all = new ArrayList<>();
        for (String name : List.of("namespace", "name")) {
            if (path.contains("{" + name + "}")) {
                all.add(fields(
                        "name",
                        name,
                        "in",
                        "path",
                        "description",
                        name.substring(0, 1).toUpperCase(Locale.ROOT) + name.substring(1) + ".",
                        "schema",
                        fields("type", "string", "pattern", "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"),
                        "required",
                        true));
            }
        }
        all.addAll(parameters);
        Map<String, Object> operation = fields(
                "description", description,
                "operationId", id,
                "parameters", all,
                "x-kubernetes-action", action,
                "x-kubernetes-group-version-kind", groupVersionKind(kind),
                "responses",
                        fields(
                                "200", fields("description", "OK", "content", json(answer)),
                                "default", fields("$ref", "#/components/responses/Failure")));
        boolean patch = action.equals("patch");
        if (patch) {
            operation.put(
                    "requestBody", fields("content", fields("application/merge-patch+json", fields("schema", OBJECT))));
        }
        @SuppressWarnings("unchecked")
        var operations = (Map<String, Object>)
                paths.computeIfAbsent(Discovery.VERSION_PATH + path, key -> new LinkedHashMap<String, Object>());
        operations.put(patch ? "patch" : "get", operation);
    }

    private void addSchemas() {
        for (Class<?> kind : KINDS) {
            schema(kind);
            schemas.put(
                    SCHEMA_PREFIX + kind.getSimpleName() + "List",
                    object(
                            "A list of " + plural(kind) + ".",
                            kind.getSimpleName() + "List",
                            fields(
                                    "metadata", described("Metadata of the list.", schema(ListMetadata.class)),
                                    "items", described("The objects.", array(schema(kind))))));
        }
        schema(GpuShareExplanation.class);
        schemas.put(
                SCHEMA_PREFIX + "Status",
                fields(
                        "description",
                        "A failure (meta/v1).",
                        "type",
                        "object",
                        "required",
                        List.of("kind", "apiVersion", "metadata", "status", "message", "reason", "code"),
                        "properties",
                        fields(
                                "kind", described("Status", STRING),
                                "apiVersion", described("v1", STRING),
                                "metadata", described("Empty.", OBJECT),
                                "status", described("Failure", with(STRING, oneOf("Failure"))),
                                "message", described("What is wrong, and what to write or do instead.", STRING),
                                "reason", described("A word of Kubernetes, such as Conflict.", STRING),
                                "details",
                                        described(
                                                "Causes with the paths of fields, and after how many seconds to"
                                                        + " try again.",
                                                OBJECT),
                                "code", described("The HTTP status.", fields("type", "integer")))));
    }

    /** The schema of a type; that of a record is a reference, and what it refers to is added. */
    private Map<String, Object> schema(Type type) {
        if (type instanceof ParameterizedType list && list.getRawType() == List.class) {
            return array(schema(list.getActualTypeArguments()[0]));
        }
        return switch (type.getTypeName()) {
            case "java.lang.String" -> STRING;
            case "boolean" -> BOOLEAN;
            case "int", "java.lang.Integer" -> fields("type", "integer", "format", "int32");
            case "long", "java.lang.Long" -> fields("type", "integer", "format", "int64");
            case "java.lang.Double" -> fields("type", "number", "format", "double");
            case "java.util.Map<java.lang.String, java.lang.String>" ->
                fields("type", "object", "additionalProperties", STRING);
            default -> record((Class<?>) type);
        };
    }

    private Map<String, Object> record(Class<?> type) {
        String name = type.getSimpleName();
        if (!schemas.containsKey(SCHEMA_PREFIX + name)) {
            schemas.put(SCHEMA_PREFIX + name, OBJECT); // keeps its place before what it refers to
            var properties = new LinkedHashMap<String, Object>();
            var required = new ArrayList<String>();
            boolean isKind = false;
            for (RecordComponent component : type.getRecordComponents()) {
                String field = component.getName();
                if (field.equals("apiVersion") || field.equals("kind")) {
                    isKind = true;
                    continue;
                }
                JsonProperty renamed = component.getAccessor().getAnnotation(JsonProperty.class);
                String property = renamed == null ? field : renamed.value();
                Map<String, Object> schema = schema(component.getGenericType());
                properties.put(
                        property,
                        described(
                                component
                                        .getAccessor()
                                        .getAnnotation(JsonPropertyDescription.class)
                                        .value(),
                                with(schema, CONSTRAINTS.getOrDefault(name + "." + field, Map.of()))));
                if (!component.getAnnotatedType().isAnnotationPresent(Nullable.class)) {
                    required.add(property);
                }
            }
            String description = type.getAnnotation(JsonClassDescription.class).value();
            schemas.put(
                    SCHEMA_PREFIX + name,
                    isKind
                            ? object(description, name, properties)
                            : fields(
                                    "description", description,
                                    "type", "object",
                                    "required", required,
                                    "properties", properties));
        }
        return ref(name);
    }

    /** The schema of a kind, all of whose fields are always there. */
    private static Map<String, Object> object(String description, String kind, Map<String, Object> rest) {
        Map<String, Object> properties = with(
                fields("apiVersion", described(Discovery.GROUP_VERSION, STRING), "kind", described(kind, STRING)),
                rest);
        return fields(
                "description",
                description,
                "type",
                "object",
                "required",
                List.copyOf(properties.keySet()),
                "properties",
                properties,
                "x-kubernetes-group-version-kind",
                List.of(groupVersionKind(kind)));
    }

    private static Map<String, Object> groupVersionKind(String kind) {
        return fields("group", Discovery.GROUP, "version", Discovery.VERSION, "kind", kind);
    }

    /** A reference takes no fields beside it in OpenAPI 3.0. */
    private static Map<String, Object> described(String description, Map<String, Object> schema) {
        return with(
                fields("description", description),
                schema.containsKey("$ref") ? fields("allOf", List.of(schema)) : schema);
    }

    private static Map<String, Object> query(String name, String description, Map<String, Object> schema) {
        return fields("name", name, "in", "query", "description", description, "schema", schema);
    }

    private static Map<String, Object> policies() {
        return oneOf(Arrays.stream(CorePolicy.values()).map(CorePolicy::print).toArray(String[]::new));
    }

    private static Map<String, Object> oneOf(String... values) {
        return fields("enum", List.of(values));
    }

    private static Map<String, Object> array(Map<String, Object> items) {
        return fields("type", "array", "items", items);
    }

    private static Map<String, Object> json(Map<String, Object> schema) {
        return fields("application/json", fields("schema", schema));
    }

    private static Map<String, Object> ref(String name) {
        return fields("$ref", "#/components/schemas/" + SCHEMA_PREFIX + name);
    }

    private static String plural(Class<?> kind) {
        return kind.getSimpleName().toLowerCase(Locale.ROOT) + "s";
    }

    private static Map<String, Object> with(Map<String, Object> first, Map<String, Object> second) {
        var both = new LinkedHashMap<>(first);
        both.putAll(second);
        return both;
    }

    /** Keys and values by turns. */
    private static Map<String, Object> fields(Object... keysAndValues) {
        var fields = new LinkedHashMap<String, Object>();
        for (int i = 0; i < keysAndValues.length; i += 2) {
            fields.put((String) keysAndValues[i], keysAndValues[i + 1]);
        }
        return fields;
    }
}
