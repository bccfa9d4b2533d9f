package io.aliquot.api.foreign;

import java.util.List;
import java.util.Map;

/**
 * Whether HAMi serves a node's GPUs: HAMi's device plugin lists them in the node annotation {@value #REGISTER} every 30 s, and
 * HAMi's scheduler and the plugin exchange the time in a second annotation, which the scheduler sets to {@code Deleted_…} when
 * it finds the plugin gone (github.com/Project-HAMi/HAMi, docs/develop/protocol.md; pkg/device/nvidia/device.go). Both
 * annotations outlast an uninstalled HAMi.
 */
public final class HamiRegistration {
    public static final String REGISTER = "hami.io/node-nvidia-register";

    /** The first is the name for NVIDIA's GPUs in HAMi's code, the second that of its documentation. */
    public static final List<String> HANDSHAKES = List.of("hami.io/node-handshake", "hami.io/node-handshake-nvidia");

    private static final String DELETED = "Deleted";

    private HamiRegistration() {}

    /** Whether a node with these annotations is registered. */
    public static boolean isOn(Map<String, String> nodeAnnotations) {
        String gpus = nodeAnnotations.getOrDefault(REGISTER, "").strip();
        return !gpus.isEmpty()
                && !gpus.equals("[]")
                && HANDSHAKES.stream()
                        .noneMatch(
                                name -> nodeAnnotations.getOrDefault(name, "").startsWith(DELETED));
    }
}
