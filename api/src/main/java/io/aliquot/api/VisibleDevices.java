package io.aliquot.api;

import java.util.List;
import java.util.stream.Collectors;

/**
 * How a node's NVIDIA runtime wants GPUs named in {@code NVIDIA_VISIBLE_DEVICES}: {@code {uuid}} where it resolves
 * UUIDs, {@code runtime.nvidia.com/gpu={uuid}} where it wants CDI names.
 */
public record VisibleDevices(String template) {
    private static final String UUID = "{uuid}";

    /** The value that shows a container no GPU. */
    public static final String NONE = "void";

    public VisibleDevices {
        if (!template.contains(UUID) || !template.matches("[!-+\\--~]{6,200}")) {
            throw FormatException.expected(
                    "a template of visible ASCII characters without commas that contains {uuid}", template);
        }
    }

    /** The env's value for these GPUs, in this order. */
    public String of(List<String> uuids) {
        return uuids.stream().map(uuid -> template.replace(UUID, uuid)).collect(Collectors.joining(","));
    }
}
