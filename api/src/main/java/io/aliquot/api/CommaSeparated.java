package io.aliquot.api;

import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Function;

/** Values with commas between them, spaces around them being ignored. */
final class CommaSeparated {
    /** Each is looked at for each GPU of each node. */
    private static final int LONGEST = 64;

    private CommaSeparated() {}

    /** At least one, each once, in the order written; an error says {@code where} it stood. */
    static <T> List<T> parse(String where, String text, Function<String, T> element) {
        Set<T> elements = new LinkedHashSet<>();
        String[] parts = text.split(",", LONGEST + 1);
        if (parts.length > LONGEST) {
            throw new FormatException(where + ": write at most " + LONGEST + " values");
        }
        for (String part : parts) {
            try {
                elements.add(element.apply(part.strip()));
            } catch (FormatException e) {
                throw new FormatException(where + ": " + e.getMessage() + "; several have commas between them", e);
            }
        }
        return List.copyOf(elements);
    }
}
