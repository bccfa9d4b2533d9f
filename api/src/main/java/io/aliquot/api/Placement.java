package io.aliquot.api;

import java.util.Locale;

/** How a node, or a GPU within a node, is chosen among those that fit. */
public enum Placement {
    /** The fullest, so that whole GPUs stay free. */
    BINPACK,
    /** The emptiest, so that tenants disturb each other least. */
    SPREAD;

    private static final String NOT_YET = "fragmentation";

    /**
     * Reads a placement by its name.
     *
     * @param where the label, annotation or setting that the value comes from, for the message
     */
    public static Placement parse(String where, String text) {
        for (Placement placement : values()) {
            if (placement.print().equals(text)) {
                return placement;
            }
        }
        throw new FormatException(where + ": " + FormatException.quote(text)
                + (text.equals(NOT_YET) ? " is not supported yet" : " is unknown") + "; allowed: binpack, spread");
    }

    public String print() {
        return name().toLowerCase(Locale.ROOT);
    }
}
