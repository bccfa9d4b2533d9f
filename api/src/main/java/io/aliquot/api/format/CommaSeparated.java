package io.aliquot.api.format;

import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Function;

/** A list with commas between its values; spaces around values are ignored. */
public final class CommaSeparated {
    /** Filter compares each value with each GPU of each node. */
    private static final int MAX_VALUES = 64;

    private CommaSeparated() {}

    /**
     * Reads a list.
     *
     * @param where the annotation that the text comes from, for the message
     * @return at least one value, without duplicates, in the order of the text
     */
    public static <T> List<T> parse(String where, String text, Function<String, T> element) {
        Set<T> elements = new LinkedHashSet<>();
        String[] parts = text.split(",", MAX_VALUES + 1);
        if (parts.length > MAX_VALUES) {
            throw new FormatException(where + ": write at most " + MAX_VALUES + " values");
        }
        for (String part : parts) {
            try {
                elements.add(element.apply(part.strip()));
            } catch (FormatException e) {
                throw new FormatException(where + ": " + e.getMessage() + "; separate several values by commas", e);
            }
        }
        return List.copyOf(elements);
    }
}
