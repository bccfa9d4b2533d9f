package io.aliquot.api.nodes;

import io.aliquot.api.format.FormatException;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * How a node's NVIDIA runtime names GPUs in {@code NVIDIA_VISIBLE_DEVICES}: by UUID or by CDI name.
 *
 * @param template {@code {uuid}}, or {@code runtime.nvidia.com/gpu={uuid}} for CDI names
 */
public record VisibleDevices(String template) {
    /** Of a GPU's name, in characters: 200 of the template, with 40 of a UUID in place of 6. */
    public static final int MOST_LENGTH = 200 - 6 + 40;

    private static final String UUID = "{uuid}";

    /**
     * With this value NVIDIA's runtime injects no GPU. Unlike with an empty value, it consults no other source either
     * (NVIDIA Container Toolkit).
     */
    public static final String NONE = "void";

    public VisibleDevices {
        if (template.split(Pattern.quote(UUID), -1).length != 2 || !template.matches("[!-+\\--~]{6,200}")) {
            throw FormatException.expected(
                    "a template of visible ASCII characters without commas that contains {uuid} once", template);
        }
    }

    /** The variable's value for these GPUs, in this order. */
    public String of(List<String> uuids) {
        return uuids.stream().map(uuid -> template.replace(UUID, uuid)).collect(Collectors.joining(","));
    }
}
