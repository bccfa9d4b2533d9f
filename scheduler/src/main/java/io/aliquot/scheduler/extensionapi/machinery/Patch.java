package io.aliquot.scheduler.extensionapi.machinery;

import jakarta.servlet.http.HttpServletRequest;
import java.io.IOException;
import java.util.Locale;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JacksonException;
import tools.jackson.core.JsonPointer;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/** Applies a merge patch (RFC 7396) or a JSON patch (RFC 6902) to an object. */
public final class Patch {
    /** As in the API server (k8s.io/apiserver, maxJSONPatchOperations). */
    private static final int MOST_OPERATIONS = 10_000;

    private static final int DEEPEST = 64;

    private static final int MOST_BYTES = 256 << 10;

    private static final String MERGE_PATCH = "application/merge-patch+json";
    private static final String JSON_PATCH = "application/json-patch+json";
    private static final String VERSION = "/metadata/resourceVersion";

    private Patch() {}

    /**
     * Reads the patch from a request.
     *
     * @throws StatusException with code 413
     */
    public static byte[] read(HttpServletRequest request) throws IOException {
        byte[] patch = request.getInputStream().readNBytes(MOST_BYTES + 1);
        if (patch.length > MOST_BYTES) {
            throw new StatusException(
                    413, "RequestEntityTooLarge", "expected a patch of at most " + MOST_BYTES + " bytes");
        }
        return patch;
    }

    /**
     * The object after the patch; the given one stays as it is.
     *
     * @param contentType of the patch
     * @throws StatusException with code 400, 415 or 422
     */
    public static JsonNode apply(@Nullable String contentType, byte[] patch, JsonNode object) {
        String type = type(contentType);
        return switch (type) {
            case MERGE_PATCH -> merge(object.deepCopy(), parse(patch), 0);
            case JSON_PATCH -> operations(object.deepCopy(), parse(patch));
            default -> throw StatusException.unsupportedPatch(type);
        };
    }

    /**
     * Whether a patch speaks of the object's version, which then is a precondition: the patched object has a version in any
     * case.
     */
    public static boolean namesVersion(@Nullable String contentType, byte[] patch) {
        JsonNode parsed = parse(patch);
        if (!type(contentType).equals(JSON_PATCH)) {
            return !parsed.at(VERSION).isMissingNode();
        }
        for (JsonNode operation : parsed) {
            if (VERSION.startsWith(operation.path("path").asString("-"))) {
                return true;
            }
        }
        return false;
    }

    private static String type(@Nullable String contentType) {
        return (contentType == null ? "" : contentType)
                .split(";", -1)[0]
                .strip()
                .toLowerCase(Locale.ROOT);
    }

    private static JsonNode parse(byte[] patch) {
        try {
            JsonNode parsed = JsonMapper.shared().readTree(patch);
            if (!parsed.isMissingNode()) {
                return parsed;
            }
        } catch (JacksonException e) {
            // below
        }
        throw StatusException.badRequest("the patch is not JSON");
    }

    private static JsonNode merge(JsonNode target, JsonNode patch, int depth) {
        if (!patch.isObject()) {
            return patch;
        }
        if (depth > DEEPEST) {
            throw StatusException.badRequest("the patch is nested deeper than " + DEEPEST + " levels");
        }
        ObjectNode merged = target instanceof ObjectNode object
                ? object
                : JsonMapper.shared().createObjectNode();
        for (Map.Entry<String, JsonNode> field : patch.properties()) {
            if (field.getValue().isNull()) {
                merged.remove(field.getKey());
            } else {
                merged.set(field.getKey(), merge(merged.path(field.getKey()), field.getValue(), depth + 1));
            }
        }
        return merged;
    }

    private static JsonNode operations(JsonNode object, JsonNode patch) {
        if (!patch.isArray() || patch.size() > MOST_OPERATIONS) {
            throw StatusException.badRequest("a JSON patch is a list of at most " + MOST_OPERATIONS + " operations");
        }
        JsonNode result = object;
        for (int i = 0; i < patch.size(); i++) {
            result = operation("[" + i + "]", result, patch.get(i));
        }
        return result;
    }

    private static JsonNode operation(String where, JsonNode object, JsonNode operation) {
        JsonPointer path = pointer(where, operation, "path");
        return switch (operation.path("op").asString("")) {
            case "add" -> put(where, object, path, value(where, operation), true);
            case "replace" -> {
                get(where, object, path);
                yield put(where, object, path, value(where, operation), false);
            }
            case "remove" -> remove(where, object, path);
            case "test" -> {
                if (!get(where, object, path).equals(value(where, operation))) {
                    throw failed(where, "the test of " + path + " failed");
                }
                yield object;
            }
            case "copy" ->
                put(
                        where,
                        object,
                        path,
                        get(where, object, pointer(where, operation, "from")).deepCopy(),
                        true);
            case "move" -> {
                JsonPointer from = pointer(where, operation, "from");
                JsonNode moved = get(where, object, from);
                yield put(where, remove(where, object, from), path, moved, true);
            }
            default -> throw StatusException.badRequest(where + ".op: write add, remove, replace, move, copy or test");
        };
    }

    private static JsonPointer pointer(String where, JsonNode operation, String field) {
        try {
            JsonNode text = operation.path(field);
            if (text.isString()) {
                return JsonPointer.compile(text.asString());
            }
        } catch (IllegalArgumentException e) {
            // below
        }
        throw StatusException.badRequest(
                where + "." + field + ": write a JSON pointer such as /spec/containers/0/cores");
    }

    private static JsonNode value(String where, JsonNode operation) {
        JsonNode value = operation.path("value");
        if (value.isMissingNode()) {
            throw StatusException.badRequest(where + ".value: missing");
        }
        return value;
    }

    private static JsonNode get(String where, JsonNode object, JsonPointer path) {
        JsonNode found = object.at(path);
        if (found.isMissingNode()) {
            throw failed(where, "there is nothing at " + path);
        }
        return found;
    }

    private static JsonNode put(String where, JsonNode object, JsonPointer path, JsonNode value, boolean insert) {
        if (path.matches()) {
            return value;
        }
        JsonNode parent = get(where, object, path.head());
        String key = path.last().getMatchingProperty();
        switch (parent) {
            case ObjectNode fields -> fields.set(key, value);
            case ArrayNode list -> {
                int at = insert && key.equals("-") ? list.size() : index(where, path, list.size() - (insert ? 0 : 1));
                if (insert) {
                    list.insert(at, value);
                } else {
                    list.set(at, value);
                }
            }
            default -> throw failed(where, "there is no object or list at " + path.head());
        }
        return object;
    }

    private static JsonNode remove(String where, JsonNode object, JsonPointer path) {
        get(where, object, path);
        if (path.matches()) {
            return JsonMapper.shared().nullNode();
        }
        switch (object.at(path.head())) {
            case ObjectNode fields -> fields.remove(path.last().getMatchingProperty());
            case ArrayNode list -> list.remove(index(where, path, list.size() - 1));
            default -> throw failed(where, "there is no object or list at " + path.head());
        }
        return object;
    }

    private static int index(String where, JsonPointer path, int most) {
        int index = path.last().getMatchingIndex();
        if (index < 0 || index > most) {
            throw failed(where, "there is nothing at " + path);
        }
        return index;
    }

    /** As the API server answers a JSON patch that does not apply. */
    private static StatusException failed(String where, String why) {
        return new StatusException(
                422,
                "Invalid",
                "the server rejected our request due to an error in our request: " + where + ": " + why);
    }
}
