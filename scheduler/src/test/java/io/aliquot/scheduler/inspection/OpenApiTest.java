package io.aliquot.scheduler.inspection;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.RecordComponent;
import java.lang.reflect.Type;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.core.io.ClassPathResource;
import org.springframework.web.bind.annotation.RequestMapping;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The document and the code have the same paths, methods, fields and types. */
class OpenApiTest {
    private static final JsonNode DOCUMENT = document();
    private static final List<Class<?>> CONTROLLERS =
            List.of(InspectionController.class, ExplainController.class, ResizeController.class);

    private static JsonNode document() {
        try {
            return JsonMapper.shared().readTree(new ClassPathResource("openapi.json").getContentAsByteArray());
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    @Test
    void theDocumentHasExactlyThePathsAndMethodsOfTheControllers() {
        var described = new TreeSet<String>();
        DOCUMENT.get("paths")
                .properties()
                .forEach(path -> path.getValue()
                        .propertyNames()
                        .forEach(method -> described.add(method.toUpperCase(Locale.ROOT) + " " + path.getKey())));
        assertThat(mapped().keySet()).containsExactlyElementsOf(described);
    }

    @Test
    void everyResponseHasExactlyTheFieldsOfItsSchema() {
        var seen = new HashSet<Type>();
        mapped().forEach((operation, method) -> {
            String[] parts = operation.split(" ", -1);
            JsonNode schema = DOCUMENT.at("/paths/" + parts[1].replace("/", "~1") + "/"
                    + parts[0].toLowerCase(Locale.ROOT) + "/responses/200/content/application~1json/schema");
            if (method.getReturnType() != byte[].class) {
                check(method.getGenericReturnType(), schema, seen);
            }
        });
        assertThat(seen).hasSizeGreaterThan(10);
    }

    @Test
    void everyReferenceResolves() {
        var queue = new ArrayDeque<JsonNode>(List.of(DOCUMENT));
        int references = 0;
        while (!queue.isEmpty()) {
            JsonNode node = queue.remove();
            if (node.has("$ref")) {
                references++;
                assertThat(resolve(node).isMissingNode()).as(node.toString()).isFalse();
            }
            node.values().forEach(queue::add);
        }
        assertThat(references).isGreaterThan(50);
    }

    private static Map<String, Method> mapped() {
        var mapped = new TreeMap<String, Method>();
        for (Class<?> controller : CONTROLLERS) {
            for (Method method : controller.getDeclaredMethods()) {
                RequestMapping mapping = AnnotatedElementUtils.findMergedAnnotation(method, RequestMapping.class);
                if (mapping != null) {
                    mapped.put(mapping.method()[0] + " " + mapping.path()[0], method);
                }
            }
        }
        return mapped;
    }

    private static JsonNode resolve(JsonNode schema) {
        return schema.has("$ref") ? DOCUMENT.at(schema.get("$ref").asString().substring(1)) : schema;
    }

    /** Compares a type with its schema, recursively. */
    private static void check(Type type, JsonNode reference, Set<Type> seen) {
        JsonNode schema = resolve(reference);
        if (type instanceof ParameterizedType generic && generic.getRawType() == List.class) {
            assertThat(schema.get("type").asString()).as(type.toString()).isEqualTo("array");
            check(generic.getActualTypeArguments()[0], schema.get("items"), seen);
            return;
        }
        Class<?> raw = (Class<?>) (type instanceof ParameterizedType generic ? generic.getRawType() : type);
        if (!raw.isRecord()) {
            String expected = raw == String.class ? "string" : raw == boolean.class ? "boolean" : "integer";
            assertThat(schema.get("type").asString()).as(type + " " + schema).isEqualTo(expected);
            return;
        }
        if (!seen.add(type)) {
            return;
        }
        List<RecordComponent> components = Arrays.asList(raw.getRecordComponents());
        assertThat(schema.get("properties").propertyNames())
                .as(type.toString())
                .containsExactlyInAnyOrderElementsOf(
                        components.stream().map(RecordComponent::getName).toList());
        assertThat(schema.get("additionalProperties").asBoolean())
                .as(type.toString())
                .isFalse();
        for (RecordComponent component : components) {
            boolean optional = component.getAnnotatedType().isAnnotationPresent(Nullable.class);
            boolean required = schema.get("required")
                    .valueStream()
                    .anyMatch(name -> name.asString().equals(component.getName()));
            assertThat(required).as(type + " " + component.getName()).isEqualTo(!optional);
            Type of = component.getGenericType();
            if (of instanceof ParameterizedType list
                    && list.getActualTypeArguments()[0] instanceof java.lang.reflect.TypeVariable<?>) {
                Type item = ((ParameterizedType) type).getActualTypeArguments()[0];
                check(item, schema.at("/properties/" + component.getName() + "/items"), seen);
            } else {
                check(of, schema.get("properties").get(component.getName()), seen);
            }
        }
    }
}
