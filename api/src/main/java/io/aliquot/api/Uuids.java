package io.aliquot.api;

import java.util.regex.Pattern;

/** UUIDs of GPUs as NVML prints them. */
final class Uuids {
    private static final Pattern GPU =
            Pattern.compile("GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}");

    private Uuids() {}

    static String check(String uuid) {
        if (!GPU.matcher(uuid).matches()) {
            throw FormatException.expected("a GPU's UUID such as GPU-8f6e8f0c-12ab-34cd-56ef-1234567890ab", uuid);
        }
        return uuid;
    }
}
