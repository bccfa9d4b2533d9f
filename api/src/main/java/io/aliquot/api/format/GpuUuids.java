package io.aliquot.api.format;

import static io.aliquot.api.format.FormatException.expect;

import java.util.Set;

/** UUIDs of GPUs and of MIG instances as NVML prints them. */
public final class GpuUuids {
    /** An x stands for a hexadecimal digit in lower case. */
    private static final String SHAPE = "-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

    private static final String GPU = "GPU";
    private static final String INSTANCE = "MIG";

    private GpuUuids() {}

    /**
     * Reads a comma-separated list.
     *
     * @param where the annotation that they come from, for the message
     */
    public static Set<String> parseList(String where, String text) {
        return Set.copyOf(CommaSeparated.parse(where, text, GpuUuids::check));
    }

    /** Returns the text if it is the UUID of a GPU or of an instance; otherwise throws a {@link FormatException}. */
    public static String check(String uuid) {
        expect(hasShape(uuid), "a GPU's UUID such as GPU-8f6e8f0c-12ab-34cd-56ef-1234567890ab", uuid);
        return uuid;
    }

    /** A UUID without what tells an instance from a GPU: the files that containers share have only these digits. */
    public static String digits(String uuid) {
        return uuid.substring(GPU.length() + 1);
    }

    /** Without a regular expression, because each event of a bound pod's watch checks its UUIDs. */
    private static boolean hasShape(String uuid) {
        if (uuid.length() != GPU.length() + SHAPE.length() || !(uuid.startsWith(GPU) || uuid.startsWith(INSTANCE))) {
            return false;
        }
        for (int i = 0; i < SHAPE.length(); i++) {
            char expected = SHAPE.charAt(i);
            char found = uuid.charAt(GPU.length() + i);
            if (expected == 'x' ? !isHex(found) : found != expected) {
                return false;
            }
        }
        return true;
    }

    private static boolean isHex(char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    }
}
