package io.aliquot.scheduler.admission;

import java.util.Map;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/**
 * The difference between two JSON trees as a JSON Patch (RFC 6902). Array elements are compared by index, which takes
 * linear time and is sufficient, because admission only appends and replaces elements. An array that becomes shorter is
 * replaced as a whole, because the API server copies the array for each element that a patch removes.
 *
 * <p>zjsonpatch, a dependency of fabric8, finds the longest common subsequence in a table of n × m. Such a table takes
 * 1.6 GB for a pod with 20,000 environment variables, and any user can create one.
 */
final class JsonPatch {
    private JsonPatch() {}

    /** The operations that turn {@code before} into {@code after}; empty if they are equal. */
    static ArrayNode between(ObjectNode before, ObjectNode after) {
        ArrayNode operations = JsonNodeFactory.instance.arrayNode();
        compare(operations, "", before, after);
        return operations;
    }

    private static void compare(ArrayNode operations, String path, JsonNode before, JsonNode after) {
        if (before instanceof ObjectNode old && after instanceof ObjectNode current) {
            for (Map.Entry<String, JsonNode> field : old.properties()) {
                String fieldPath = path + "/" + escaped(field.getKey());
                JsonNode value = current.get(field.getKey());
                if (value == null) {
                    add(operations, "remove", fieldPath);
                } else {
                    compare(operations, fieldPath, field.getValue(), value);
                }
            }
            for (Map.Entry<String, JsonNode> field : current.properties()) {
                if (!old.has(field.getKey())) {
                    add(operations, "add", path + "/" + escaped(field.getKey())).set("value", field.getValue());
                }
            }
        } else if (before instanceof ArrayNode old
                && after instanceof ArrayNode current
                && old.size() <= current.size()) {
            for (int i = 0; i < old.size(); i++) {
                compare(operations, path + "/" + i, old.get(i), current.get(i));
            }
            for (int i = old.size(); i < current.size(); i++) {
                add(operations, "add", path + "/" + i).set("value", current.get(i));
            }
        } else if (!before.equals(after)) {
            add(operations, "replace", path).set("value", after);
        }
    }

    private static ObjectNode add(ArrayNode operations, String operation, String path) {
        return operations.addObject().put("op", operation).put("path", path);
    }

    private static String escaped(String field) {
        return field.replace("~", "~0").replace("/", "~1");
    }
}
