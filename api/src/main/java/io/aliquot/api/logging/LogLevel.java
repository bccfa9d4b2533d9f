package io.aliquot.api.logging;

import io.aliquot.api.format.Keywords;
import java.util.List;
import java.util.Locale;

/** How much a process logs of its own code; each level includes the ones before it. */
public enum LogLevel {
    ERROR,
    WARN,
    INFO,
    /** Also each decision about a pod, and each pass of a node's agent. */
    DEBUG;

    /**
     * Reads a level as {@link #print} writes it.
     *
     * @param where what the text is, for the message
     * @throws io.aliquot.api.format.FormatException with the allowed words
     */
    public static LogLevel parse(String where, String text) {
        return Keywords.parse(where, text, List.of(values()), LogLevel::print);
    }

    public String print() {
        return name().toLowerCase(Locale.ROOT);
    }
}
