package io.aliquot.scheduler.extensionapi.endpoints;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.format.Sha256;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.JsonResponse;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.Gpu;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuNode;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuQuota;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuShare;
import io.aliquot.scheduler.extensionapi.objects.GpuShareExplanation;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.RecordComponent;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** Compares the description of the group with the records, with what kubectl explain reads, and with its last state. */
class OpenApiTest {
    private static final String SCHEMAS = "io.aliquot.gpu.v1alpha1.";

    /** Of the document as JSON. When users may see the change, put the new digest here. */
    private static final String DIGEST = "9e8773277820894a0da961ec1daf177a55f3e4cd88352897b40f0a363dddd3cc";

    private final byte[] json = JsonResponse.json(OpenApi.document());
    private final JsonNode document = JsonMapper.shared().readTree(json);

    @Test
    void theDocumentChangesOnPurposeOnly() {
        assertThat(Sha256.hex(new String(json, StandardCharsets.UTF_8)))
                .as(document.toPrettyString())
                .isEqualTo(DIGEST);
    }

    @Test
    void everyFieldIsDescribed() {
        var seen = new HashSet<Class<?>>();
        for (Class<?> kind : List.of(GpuNode.class, Gpu.class, GpuShare.class, GpuQuota.class)) {
            check(kind, schema(kind.getSimpleName()), seen);
            assertThat(schema(kind.getSimpleName())
                            .at("/x-kubernetes-group-version-kind/0/kind")
                            .asString())
                    .isEqualTo(kind.getSimpleName());
        }
        check(GpuShareExplanation.class, schema("GpuShareExplanation"), seen);
        assertThat(seen).hasSizeGreaterThan(25);
    }

    /**
     * As kubectl does (k8s.io/kubectl 1.35, pkg/explain/v2/templates/plaintext.tmpl): the kind comes from an operation on
     * the resource's path, and its schema is the one that names that group, version and kind.
     */
    @Test
    void kubectlExplainFindsTheSchemaOfEachResource() {
        Map.of(
                        "gpunodes",
                        "GpuNode",
                        "gpus",
                        "Gpu",
                        "namespaces/{namespace}/gpushares",
                        "GpuShare",
                        "namespaces/{namespace}/gpuquotas",
                        "GpuQuota")
                .forEach((path, kind) -> {
                    JsonNode named = document.path("paths")
                            .path("/apis/gpu.aliquot.io/v1alpha1/" + path)
                            .at("/get/x-kubernetes-group-version-kind");
                    assertThat(document.at("/components/schemas").properties())
                            .filteredOn(schema -> schema.getValue()
                                    .path("x-kubernetes-group-version-kind")
                                    .valueStream()
                                    .anyMatch(named::equals))
                            .extracting(Map.Entry::getKey)
                            .containsExactly(SCHEMAS + kind);
                });
    }

    @Test
    void everyReferenceLeadsToASchema() {
        List<JsonNode> references = document.findValues("$ref");
        assertThat(references).hasSizeGreaterThan(50);
        assertThat(references)
                .allSatisfy(reference -> assertThat(
                                document.at(reference.asString().substring(1)).isObject())
                        .as(reference.asString())
                        .isTrue());
    }

    @Test
    void everyPathOfTheDiscoveryIsDescribed() {
        var described = new TreeSet<String>();
        document.path("paths")
                .properties()
                .forEach(path -> path.getValue().propertyNames().forEach(verb -> {
                    String resource = path.getKey()
                            .substring((Discovery.VERSION_PATH + "/").length())
                            .replace("namespaces/{namespace}/", "");
                    described.add(verb + " " + resource.replace("/{name}", ""));
                }));
        assertThat(described)
                .containsExactly(
                        "get gpunodes",
                        "get gpuquotas",
                        "get gpus",
                        "get gpus/history",
                        "get gpushares",
                        "get gpushares/explain",
                        "get gpushares/history",
                        "patch gpushares");
    }

    private JsonNode schema(String name) {
        return document.path("components").path("schemas").path(SCHEMAS + name);
    }

    private JsonNode resolve(JsonNode schema) {
        JsonNode reference = schema.has("allOf") ? schema.at("/allOf/0/$ref") : schema.path("$ref");
        return reference.isMissingNode()
                ? schema
                : document.at(reference.asString().substring(1));
    }

    private void check(Type type, JsonNode described, Set<Class<?>> seen) {
        JsonNode schema = resolve(described);
        if (type instanceof ParameterizedType generic && generic.getRawType() == List.class) {
            assertThat(schema.path("type").asString()).as(type.toString()).isEqualTo("array");
            check(generic.getActualTypeArguments()[0], schema.path("items"), seen);
            return;
        }
        Class<?> raw = (Class<?>) (type instanceof ParameterizedType generic ? generic.getRawType() : type);
        if (!raw.isRecord()) {
            assertThat(schema.path("type").asString("")).as(type + " " + schema).isEqualTo(word(raw));
            return;
        }
        if (!seen.add(raw)) {
            return;
        }
        List<RecordComponent> components = Arrays.asList(raw.getRecordComponents());
        assertThat(schema.path("properties").propertyNames())
                .as(raw.getSimpleName())
                .containsExactlyElementsOf(
                        components.stream().map(RecordComponent::getName).toList());
        for (RecordComponent component : components) {
            boolean required = schema.path("required")
                    .valueStream()
                    .anyMatch(name -> name.asString().equals(component.getName()));
            assertThat(required)
                    .as(raw.getSimpleName() + " " + component.getName())
                    .isEqualTo(!component.getAnnotatedType().isAnnotationPresent(Nullable.class));
            JsonNode property = schema.path("properties").path(component.getName());
            assertThat(property.path("description").asString(""))
                    .as(component.toString())
                    .isNotEmpty();
            check(component.getGenericType(), property, seen);
        }
    }

    private static String word(Class<?> type) {
        if (type == String.class) {
            return "string";
        }
        if (type == boolean.class) {
            return "boolean";
        }
        if (type == Double.class) {
            return "number";
        }
        return type == Map.class ? "object" : "integer";
    }
}
