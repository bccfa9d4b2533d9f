package io.aliquot.api;

/** The number of vGPUs that a GPU is split into at most. */
public final class SlotCount {
    public static final int DEFAULT = 10;
    /** More tenants than a GPU has memory for make no sense; the kubelet would carry every one of them as a device. */
    public static final int MOST = 1000;

    private SlotCount() {}

    /**
     * Reads a number of slots.
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
