package io.aliquot.api;

import java.util.List;
import java.util.Locale;

/** Whose meaning a name has that others use too. */
public enum Compatibility {
    /** Ours. */
    NONE,
    /**
     * HAMi's: all of a GPU's compute is the whole GPU, more than all of it is all, {@code nvidia.com/priority} 0 is high
     * and 1 is low.
     */
    HAMI;

    /**
     * Reads one by its name.
     *
     * @param where the annotation or setting that the value comes from, for the message
     */
    public static Compatibility parse(String where, String text) {
        return Keywords.parse(where, text, List.of(values()), Compatibility::print);
    }

    public String print() {
        return name().toLowerCase(Locale.ROOT);
    }
}
