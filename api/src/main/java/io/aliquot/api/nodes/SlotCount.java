package io.aliquot.api.nodes;

import io.aliquot.api.format.FormatException;

/** The maximum number of vGPUs of a GPU. */
public final class SlotCount {
    public static final int DEFAULT = 10;
    /** The kubelet keeps a device for each slot, and a GPU has no memory for more containers. */
    public static final int MOST = 1000;

    private SlotCount() {}

    /**
     * Reads a whole number.
     *
     * @param where the annotation or setting that the value comes from, for the message
     */
    public static int parse(String where, String text) {
        if (text.matches("[0-9]{1,4}")) {
            int slots = Integer.parseInt(text);
            if (slots >= 1 && slots <= MOST) {
                return slots;
            }
        }
        throw new FormatException(where + ": " + FormatException.quote(text) + " is not a number of slots from 1 to "
                + MOST + "; write for example \"20\"");
    }
}
