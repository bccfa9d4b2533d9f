package io.aliquot.api;

import java.util.Set;
import java.util.regex.Pattern;

/** UUIDs of GPUs as NVML prints them. */
public final class Uuids {
    private static final Pattern GPU =
            Pattern.compile("GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}");

    private Uuids() {}

    /**
     * Reads UUIDs with commas between them.
     *
     * @param where the annotation that they come from, for the message
     */
    public static Set<String> parseList(String where, String text) {
        return Set.copyOf(Lists.parse(where, text, Uuids::check));
    }

    static String check(String uuid) {
        if (!GPU.matcher(uuid).matches()) {
            throw FormatException.expected("a GPU's UUID such as GPU-8f6e8f0c-12ab-34cd-56ef-1234567890ab", uuid);
        }
        return uuid;
    }
}
