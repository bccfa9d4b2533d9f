package io.aliquot.api.pods;

import com.fasterxml.jackson.annotation.JsonValue;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.Keywords;
import java.util.List;
import java.util.Locale;

/** Whose kernels go first on a GPU that containers share. */
public enum Priority {
    /** Before all that containers of low priority have above their floor. */
    HIGH,
    /** Neither gives way nor takes it. */
    NORMAL,
    /** Gives way to containers of high priority, down to a floor. */
    LOW;

    /**
     * Reads {@code high}, {@code normal} or {@code low}.
     *
     * @param where the annotation that the value comes from, for the message
     * @throws FormatException if it is another value
     */
    public static Priority parse(String where, String text) {
        return Keywords.parse(where, text, List.of(values()), Priority::print);
    }

    static Priority parse(String text) {
        return Keywords.find(text, List.of(values()), Priority::print)
                .orElseThrow(() -> FormatException.expected("priority high, normal or low", text));
    }

    @JsonValue
    public String print() {
        return name().toLowerCase(Locale.ROOT);
    }
}
