package io.aliquot.api.pods;

import com.fasterxml.jackson.annotation.JsonValue;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.Keywords;
import java.util.List;
import java.util.Locale;

/** Whether a container may use more compute than its cores. */
public enum CorePolicy {
    /** Never more than its cores. */
    FIXED,
    /** Its cores and a proportional part of the compute that other containers leave idle. */
    ELASTIC,
    /** Its cores are reserved, but its use is not limited. */
    NONE;

    /**
     * Reads {@code fixed}, {@code elastic} or {@code none}.
     *
     * @param where the annotation that the value comes from, for the message
     */
    public static CorePolicy parse(String where, String text) {
        return Keywords.parse(where, text, List.of(values()), CorePolicy::print);
    }

    static CorePolicy parse(String text) {
        return Keywords.find(text, List.of(values()), CorePolicy::print)
                .orElseThrow(() -> FormatException.expected("policy fixed, elastic or none", text));
    }

    /**
     * Whether the compute of a container with these cores is limited: with the policy elastic, also if it has none of its
     * own.
     *
     * @param cores percent of the GPU
     */
    public boolean limits(int cores) {
        return this == ELASTIC || (this == FIXED && cores > 0);
    }

    @JsonValue
    public String print() {
        return name().toLowerCase(Locale.ROOT);
    }
}
