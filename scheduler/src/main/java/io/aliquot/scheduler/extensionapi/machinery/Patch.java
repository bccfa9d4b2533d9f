package io.aliquot.scheduler.extensionapi.machinery;

import jakarta.servlet.http.HttpServletRequest;
import java.io.IOException;
import java.util.Locale;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

/**
 * Applies a merge patch (RFC 7396) to an object. A JSON patch (RFC 6902) is refused: its operation {@code copy} can double
 * the object again and again, and kubectl's commands send one only on request.
 */
public final class Patch {
    private static final int MOST_BYTES = 256 << 10;

    private static final String MERGE_PATCH = "application/merge-patch+json";
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
            throw new StatusException(413, "expected a patch of at most " + MOST_BYTES + " bytes");
        }
        return patch;
    }

    /**
     * The object after the patch; the given one stays as it is.
     *
     * @param contentType of the patch
     * @throws StatusException with code 400 or 415
     */
    public static JsonNode apply(@Nullable String contentType, byte[] patch, JsonNode object) {
        String type = type(contentType);
        if (!type.equals(MERGE_PATCH)) {
            throw StatusException.unsupportedPatch(type);
        }
        return merge(object.deepCopy(), parse(patch));
    }

    /**
     * Whether a patch speaks of the object's version, which then is a precondition: the patched object has a version in any
     * case.
     */
    public static boolean namesVersion(byte[] patch) {
        return !parse(patch).at(VERSION).isMissingNode();
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

    private static JsonNode merge(JsonNode target, JsonNode patch) {
        if (!patch.isObject()) {
            return patch;
        }
        ObjectNode merged = target instanceof ObjectNode object
                ? object
                : JsonMapper.shared().createObjectNode();
        for (Map.Entry<String, JsonNode> field : patch.properties()) {
            if (field.getValue().isNull()) {
                merged.remove(field.getKey());
            } else {
                merged.set(field.getKey(), merge(merged.path(field.getKey()), field.getValue()));
            }
        }
        return merged;
    }
}
