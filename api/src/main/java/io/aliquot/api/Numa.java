package io.aliquot.api;

import java.util.List;
import java.util.Locale;

/** Whether all GPUs of a container hang on one NUMA domain of their node. */
public enum Numa {
    /** Only where they do. */
    REQUIRED,
    /** Where they can. */
    PREFERRED;

    /**
     * Reads one by its name.
     *
     * @param where the annotation that the value comes from, for the message
     */
    public static Numa parse(String where, String text) {
        return Keywords.parse(where, text, List.of(values()), Numa::print);
    }

    public String print() {
        return name().toLowerCase(Locale.ROOT);
    }
}
