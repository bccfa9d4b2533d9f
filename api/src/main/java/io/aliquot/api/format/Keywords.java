package io.aliquot.api.format;

import java.util.List;
import java.util.Optional;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Parser of values that are one of a few words. */
public final class Keywords {
    private Keywords() {}

    /**
     * The choice that prints as {@code text}.
     *
     * @param where the annotation, label or setting that the text comes from, for the message
     * @param othersAllowed further texts for the message, which the caller reads itself
     * @throws FormatException if there is none, with the allowed texts
     */
    public static <T> T parse(
            String where, String text, List<T> choices, Function<T, String> print, String... othersAllowed) {
        return find(text, choices, print)
                .orElseThrow(() -> new FormatException(where + ": " + FormatException.quote(text)
                        + " is unknown; allowed: "
                        + Stream.concat(choices.stream().map(print), Stream.of(othersAllowed))
                                .collect(Collectors.joining(", "))));
    }

    /** The choice that prints as {@code text}; empty if there is none. */
    public static <T> Optional<T> find(String text, List<T> choices, Function<T, String> print) {
        return choices.stream()
                .filter(choice -> print.apply(choice).equals(text))
                .findFirst();
    }
}
