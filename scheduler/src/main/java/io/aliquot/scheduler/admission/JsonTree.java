package io.aliquot.scheduler.admission;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.BooleanNode;
import tools.jackson.databind.node.ObjectNode;
import tools.jackson.databind.node.StringNode;

/**
 * Typed access to a JSON tree. As for the API server, a field that is {@code null} counts as absent. A field of the
 * wrong type is a {@link MalformedReviewException}.
 */
final class JsonTree {
    private JsonTree() {}

    static Optional<ObjectNode> object(ObjectNode parent, String field) {
        return field(parent, field, ObjectNode.class, "an object");
    }

    /** The array's elements without those that {@link ReviewReader} left out. */
    static List<ObjectNode> objects(ObjectNode parent, String field) {
        var objects = new ArrayList<ObjectNode>();
        array(parent, field).ifPresent(array -> {
            for (JsonNode element : array) {
                if (!element.isMissingNode()) {
                    objects.add(cast(element, field + "[]", ObjectNode.class, "an object"));
                }
            }
        });
        return objects;
    }

    static List<String> strings(ObjectNode parent, String field) {
        var strings = new ArrayList<String>();
        array(parent, field)
                .ifPresent(array ->
                        array.forEach(element -> strings.add(cast(element, field + "[]", StringNode.class, "a string")
                                .stringValue())));
        return strings;
    }

    /** The field's text; empty if the field is absent or its text is empty. */
    static Optional<String> text(ObjectNode parent, String field) {
        return field(parent, field, StringNode.class, "a string")
                .map(StringNode::stringValue)
                .filter(text -> !text.isEmpty());
    }

    static boolean isTrue(ObjectNode parent, String field) {
        return field(parent, field, BooleanNode.class, "true or false")
                .map(BooleanNode::booleanValue)
                .orElse(false);
    }

    /** An object whose values are strings or numbers (quantities may be either), in its order. */
    static Map<String, String> texts(ObjectNode parent, String field) {
        var texts = new LinkedHashMap<String, String>();
        object(parent, field)
                .ifPresent(object -> object.properties().forEach(entry -> {
                    JsonNode value = entry.getValue();
                    if (!value.isNumber()) {
                        cast(value, field + "[" + entry.getKey() + "]", StringNode.class, "a string");
                    }
                    texts.put(entry.getKey(), value.asString(""));
                }));
        return texts;
    }

    static Optional<ArrayNode> array(ObjectNode parent, String field) {
        return field(parent, field, ArrayNode.class, "an array");
    }

    private static <T extends JsonNode> Optional<T> field(
            ObjectNode parent, String field, Class<T> type, String expected) {
        return Optional.ofNullable(parent.get(field))
                .filter(node -> !node.isNull())
                .map(node -> cast(node, field, type, expected));
    }

    private static <T extends JsonNode> T cast(JsonNode node, String field, Class<T> type, String expected) {
        if (!type.isInstance(node)) {
            throw new MalformedReviewException("expected " + field + " to be " + expected + ", found "
                    + node.getNodeType().name().toLowerCase(Locale.ROOT));
        }
        return type.cast(node);
    }
}
