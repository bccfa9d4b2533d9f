package io.aliquot.scheduler.admission;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;

/**
 * Typed access to a JSON tree. As for the API server, a field that is {@code null} counts as absent. A field of the
 * wrong type is a {@link MalformedReviewException}.
 */
final class JsonTree {
    private JsonTree() {}

    static Optional<ObjectNode> object(ObjectNode parent, String field) {
        return field(parent, field).map(node -> asObject(node, field));
    }

    static List<ObjectNode> objects(ObjectNode parent, String field) {
        var objects = new ArrayList<ObjectNode>();
        field(parent, field).ifPresent(node -> {
            for (JsonNode element : asArray(node, field)) {
                objects.add(asObject(element, field + "[]"));
            }
        });
        return objects;
    }

    /** The field's text; empty if the field is absent or its text is empty. */
    static Optional<String> text(ObjectNode parent, String field) {
        return field(parent, field)
                .map(node -> {
                    if (!node.isTextual()) {
                        throw expected(field, "a string", node);
                    }
                    return node.textValue();
                })
                .filter(text -> !text.isEmpty());
    }

    static boolean isTrue(ObjectNode parent, String field) {
        return field(parent, field)
                .map(node -> {
                    if (!node.isBoolean()) {
                        throw expected(field, "true or false", node);
                    }
                    return node.booleanValue();
                })
                .orElse(false);
    }

    /** An object whose values are strings or numbers (quantities may be either), in its order. */
    static Map<String, String> texts(ObjectNode parent, String field) {
        var texts = new LinkedHashMap<String, String>();
        object(parent, field)
                .ifPresent(object -> object.properties().forEach(entry -> {
                    JsonNode value = entry.getValue();
                    if (!value.isTextual() && !value.isNumber()) {
                        throw expected(field + "[" + entry.getKey() + "]", "a string", value);
                    }
                    texts.put(entry.getKey(), value.asText());
                }));
        return texts;
    }

    /** The field's object; added if it is absent. */
    static ObjectNode ensureObject(ObjectNode parent, String field) {
        return object(parent, field).orElseGet(() -> parent.putObject(field));
    }

    /** The field's array; added if it is absent. */
    static ArrayNode ensureArray(ObjectNode parent, String field) {
        return field(parent, field).map(node -> asArray(node, field)).orElseGet(() -> parent.putArray(field));
    }

    private static Optional<JsonNode> field(ObjectNode parent, String field) {
        return Optional.ofNullable(parent.get(field)).filter(node -> !node.isNull());
    }

    private static ObjectNode asObject(JsonNode node, String field) {
        if (node instanceof ObjectNode object) {
            return object;
        }
        throw expected(field, "an object", node);
    }

    private static ArrayNode asArray(JsonNode node, String field) {
        if (node instanceof ArrayNode array) {
            return array;
        }
        throw expected(field, "an array", node);
    }

    private static MalformedReviewException expected(String field, String type, JsonNode found) {
        return new MalformedReviewException("expected " + field + " to be " + type + ", found "
                + found.getNodeType().name().toLowerCase(Locale.ROOT));
    }
}
