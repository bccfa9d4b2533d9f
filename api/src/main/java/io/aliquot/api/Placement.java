package io.aliquot.api;

import java.util.List;
import java.util.Locale;

/** How a node, or a GPU within a node, is chosen among those that fit. */
public enum Placement {
    /** The fullest, so that whole GPUs stay free. */
    BINPACK,
    /** The emptiest, so that tenants disturb each other least. */
    SPREAD,
    /** Where it costs the pods that come later least: where least GPU is left that none of them can use. */
    FRAGMENTATION;

    /**
     * Reads a placement by its name.
     *
     * @param where the label, annotation or setting that the value comes from, for the message
     */
    public static Placement parse(String where, String text) {
        return Keywords.parse(where, text, List.of(values()), Placement::print);
    }

    public String print() {
        return name().toLowerCase(Locale.ROOT);
    }
}
