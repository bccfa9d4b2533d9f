package io.aliquot.api.usage;

import com.fasterxml.jackson.annotation.JsonInclude;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.JsonFields;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.DeserializationFeature;
import tools.jackson.databind.MapperFeature;
import tools.jackson.databind.exc.MismatchedInputException;
import tools.jackson.databind.json.JsonMapper;

/**
 * The JSON that the scheduler and node agents exchange: the components of records, without those that are empty. A text of the
 * other program is not trusted: its values are bounded by {@link JsonFields#JSON} and checked by the records.
 */
final class AgentJson {
    private static final int LONGEST_MESSAGE = 300;

    private static final JsonMapper MAPPER = JsonFields.JSON
            .rebuild()
            .changeDefaultPropertyInclusion(all -> all.withValueInclusion(JsonInclude.Include.NON_ABSENT))
            .enable(DeserializationFeature.FAIL_ON_NULL_CREATOR_PROPERTIES)
            .enable(DeserializationFeature.FAIL_ON_NULL_FOR_PRIMITIVES)
            .disable(DeserializationFeature.ACCEPT_FLOAT_AS_INT)
            .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES) // of a newer version
            .disable(MapperFeature.ALLOW_COERCION_OF_SCALARS)
            .build();

    private AgentJson() {}

    /** Throws a {@link FormatException} that names the field which is wrong. */
    static <T> T parse(Class<T> type, String text) {
        try {
            T value = MAPPER.readValue(text, type);
            if (value == null) {
                throw new FormatException("expected a " + type.getSimpleName() + ", found null");
            }
            return value;
        } catch (JacksonException e) {
            String message = "expected a " + type.getSimpleName() + " in JSON: "
                    + switch (e.getCause()) {
                        case FormatException wrong -> wrong.getMessage();
                        case null, default ->
                            e instanceof MismatchedInputException
                                    ? e.getPathReference() + " is missing or another value"
                                    : e.getOriginalMessage();
                    };
            throw new FormatException(message.substring(0, Math.min(message.length(), LONGEST_MESSAGE)), e);
        }
    }

    static String print(Object value) {
        return MAPPER.writeValueAsString(value);
    }
}
