package io.aliquot.api;

import java.util.List;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** One of a few words. */
final class Keywords {
    private Keywords() {}

    /** The choice that prints as {@code text}; else an error that names {@code where} and all that are allowed. */
    static <T> T parse(String where, String text, List<T> choices, Function<T, String> print, String... othersAllowed) {
        return choices.stream()
                .filter(choice -> print.apply(choice).equals(text))
                .findFirst()
                .orElseThrow(() -> new FormatException(where + ": " + FormatException.quote(text)
                        + " is unknown; allowed: "
                        + Stream.concat(choices.stream().map(print), Stream.of(othersAllowed))
                                .collect(Collectors.joining(", "))));
    }
}
