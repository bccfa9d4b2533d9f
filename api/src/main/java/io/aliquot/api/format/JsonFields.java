package io.aliquot.api.format;

import static io.aliquot.api.format.FormatException.expect;

import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.OptionalInt;
import tools.jackson.core.JacksonException;
import tools.jackson.core.StreamReadConstraints;
import tools.jackson.core.StreamReadFeature;
import tools.jackson.core.json.JsonFactory;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** Reads fields of JSON objects; a {@link FormatException} names the field that is missing or of another type. */
public final class JsonFields {
    /**
     * The most values, names and brackets of a text. A tree takes up to 40 bytes for each, so that of a hostile node's text
     * 12 MB; the longest real one, a GPU's history, has 2,700 for each container.
     */
    private static final int MOST_TOKENS = 300_000;

    public static final JsonMapper JSON = JsonMapper.builder(JsonFactory.builder()
                    .streamReadConstraints(StreamReadConstraints.builder()
                            .maxTokenCount(MOST_TOKENS)
                            .build())
                    .build())
            .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
            .build();

    private JsonFields() {}

    /**
     * Parses a JSON object with the field {@code version}.
     *
     * @param what the text is, for the error
     */
    public static JsonNode versioned(String what, String text, int version) {
        JsonNode root;
        try {
            root = JSON.readTree(text);
        } catch (JacksonException e) {
            throw new FormatException("expected " + what + " in JSON: " + e.getOriginalMessage(), e);
        }
        expect(root.isObject(), "a JSON object", root.getNodeType());
        int found = integer(root, "version");
        expect(found == version, "version " + version, found);
        return root;
    }

    public static JsonNode field(JsonNode object, String name) {
        JsonNode value = object.get(name);
        if (value == null) {
            throw new FormatException("expected the field " + name + ", found none");
        }
        return value;
    }

    public static int integer(JsonNode object, String name) {
        JsonNode value = field(object, name);
        expect(value.isIntegralNumber() && value.canConvertToInt(), "a whole number " + name, value);
        return value.intValue();
    }

    public static OptionalInt optionalInteger(JsonNode object, String name) {
        return object.has(name) ? OptionalInt.of(integer(object, name)) : OptionalInt.empty();
    }

    public static long whole(JsonNode object, String name) {
        JsonNode value = field(object, name);
        expect(value.isIntegralNumber() && value.canConvertToLong(), "a whole number " + name, value);
        return value.longValue();
    }

    public static boolean truth(JsonNode object, String name) {
        JsonNode value = field(object, name);
        expect(value.isBoolean(), name + " true or false", value);
        return value.booleanValue();
    }

    public static Instant instant(JsonNode object, String name) {
        String text = text(object, name);
        try {
            return Instant.parse(text);
        } catch (DateTimeParseException e) {
            throw FormatException.expected("a time " + name + " such as 2026-11-26T16:00:00Z", text);
        }
    }

    public static String text(JsonNode object, String name) {
        JsonNode value = field(object, name);
        expect(value.isString(), "a text " + name, value);
        return value.stringValue();
    }

    public static String optionalText(JsonNode object, String name) {
        return object.has(name) ? text(object, name) : "";
    }
}
