package io.aliquot.api.pods;

import io.aliquot.api.format.Keywords;
import java.util.List;
import java.util.Locale;

/**
 * The name of the placement policy that selects a node, or GPUs within a node, among those that fit, as users write it. The
 * scheduler's class {@code PlacementPolicy} says what each one selects.
 */
public enum Placement {
    /** The fullest: whole GPUs stay free. */
    BINPACK,
    /** The emptiest: containers share GPUs as little as possible. */
    SPREAD,
    /** The one that leaves the least free capacity that later pods cannot use. */
    FRAGMENTATION;

    /**
     * Reads {@code binpack}, {@code spread} or {@code fragmentation}.
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
