package io.aliquot.api.nodes;

import io.aliquot.api.format.FormatException;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * What the containers of a node have in {@code NVIDIA_VISIBLE_DEVICES}: their GPUs as NVIDIA's runtime names them, by UUID or
 * by CDI name, or {@link #NONE} where they get them by the CDI device that Allocate names.
 *
 * @param template {@code {uuid}}, {@code runtime.nvidia.com/gpu={uuid}} for CDI names, or {@link #NONE}
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

    /** Of a node whose containers get their GPUs by the CDI device that Allocate names. */
    public static final VisibleDevices BY_ALLOCATE = new VisibleDevices(NONE);

    public VisibleDevices {
        if (!template.equals(NONE)
                && (template.split(Pattern.quote(UUID), -1).length != 2 || !template.matches("[!-+\\--~]{6,200}"))) {
            throw FormatException.expected(
                    "a template of visible ASCII characters without commas that contains {uuid} once, or " + NONE,
                    template);
        }
    }

    /** The variable's value for these GPUs, in this order. */
    public String of(List<String> uuids) {
        return template.equals(NONE)
                ? NONE
                : uuids.stream().map(uuid -> template.replace(UUID, uuid)).collect(Collectors.joining(","));
    }
}
