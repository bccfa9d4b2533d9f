package io.aliquot.api.pods;

import io.aliquot.api.format.Keywords;
import java.util.List;
import java.util.Locale;

/** Whether all GPUs of a container must be in one NUMA domain of their node. */
public enum Numa {
    /** Only nodes with enough free GPUs in one domain fit. */
    REQUIRED,
    /** GPUs in one domain are selected where possible. */
    PREFERRED;

    /**
     * Reads {@code required} or {@code preferred}.
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
