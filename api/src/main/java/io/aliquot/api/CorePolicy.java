package io.aliquot.api;

import java.util.List;
import java.util.Locale;

/** What a share of compute means while others leave theirs unused. */
public enum CorePolicy {
    /** Never more than the share. */
    FIXED,
    /** The share, and idle compute of others in proportion. */
    ELASTIC,
    /** No limit. */
    NONE;

    /**
     * Reads a policy by its name.
     *
     * @param where the annotation that the value comes from, for the message
     */
    public static CorePolicy parse(String where, String text) {
        return Keywords.parse(where, text, List.of(values()), CorePolicy::print);
    }

    static CorePolicy parse(String text) {
        for (CorePolicy policy : values()) {
            if (policy.print().equals(text)) {
                return policy;
            }
        }
        throw FormatException.expected("policy fixed, elastic or none", text);
    }

    public String print() {
        return name().toLowerCase(Locale.ROOT);
    }
}
