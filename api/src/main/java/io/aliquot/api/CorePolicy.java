package io.aliquot.api;

import java.util.Locale;

/** What a share of compute means while others leave theirs unused. */
public enum CorePolicy {
    /** Never more than the share. */
    FIXED,
    /** The share, and idle compute of others in proportion. */
    ELASTIC,
    /** No limit. */
    NONE;

    static CorePolicy parse(String text) {
        for (CorePolicy policy : values()) {
            if (policy.print().equals(text)) {
                return policy;
            }
        }
        throw FormatException.expected("policy fixed, elastic or none", text);
    }

    String print() {
        return name().toLowerCase(Locale.ROOT);
    }
}
