package io.aliquot.api;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;

/** Annotation keys, and who writes them. */
public final class Annotations {
    /** On a pod, by Bind alone: what one container holds, {@link Vgpus} as text. Completed by {@link #vgpu}. */
    public static final String VGPU_PREFIX = "aliquot.io/vgpu.";

    /** On a pod, by Bind alone: what NVIDIA's runtime shall inject. Completed by {@link #visibleDevices}. */
    public static final String VISIBLE_DEVICES_PREFIX = "aliquot.io/visible-devices.";

    /** On a Binding, and so on the pod: the {@link Fence} under which it was bound. */
    public static final String FENCE = "aliquot.io/fence";

    /** On a node, by its agent alone: the {@link Inventory}. */
    public static final String GPUS = "aliquot.io/gpus";

    /** On one node, by the scheduler alone: a timestamp that makes kube-scheduler retry waiting pods. */
    public static final String WAKE = "aliquot.io/wake";

    /** On a node, by its admin: vGPUs that a GPU is split into at most. */
    public static final String SLOTS = "aliquot.io/slots";

    /** On a pod, by its user: how to choose its node, a {@link Placement}. */
    public static final String NODE_PLACEMENT = "aliquot.io/node-placement";

    /** On a pod, by its user: how to choose its GPUs within the node, a {@link Placement}. */
    public static final String GPU_PLACEMENT = "aliquot.io/gpu-placement";

    /** What a user may put on a pod. */
    public static final List<String> SUPPORTED_ON_PODS = List.of(NODE_PLACEMENT, GPU_PLACEMENT);

    /** Names we know on pods and refuse until they are supported. */
    public static final List<String> NOT_YET_ON_PODS = List.of(
            "aliquot.io/use-gpu-model",
            "aliquot.io/avoid-gpu-model",
            "aliquot.io/use-gpu-uuid",
            "aliquot.io/avoid-gpu-uuid",
            "aliquot.io/numa",
            "aliquot.io/core-policy",
            "aliquot.io/priority",
            "nvidia.com/use-gputype",
            "nvidia.com/nouse-gputype",
            "nvidia.com/use-gpuuuid",
            "nvidia.com/nouse-gpuuuid",
            "hami.io/node-scheduler-policy",
            "hami.io/gpu-scheduler-policy");

    /** Names we know on nodes and refuse until they are supported. */
    public static final List<String> NOT_YET_ON_NODES =
            List.of("aliquot.io/cordon-gpus", "aliquot.io/memory-scaling", "aliquot.io/core-scaling");

    // A name part has at most 63 characters, and "visible-devices." takes 16 (Kubernetes: labels and annotations,
    // syntax).
    private static final int LONGEST_CONTAINER = 46;
    private static final int KEPT_OF_LONG_CONTAINER = 37;
    private static final int HASH_DIGITS = 8;

    private Annotations() {}

    /** The key of what {@code container} holds. */
    public static String vgpu(String container) {
        return VGPU_PREFIX + containerKey(container);
    }

    /** The key of what the runtime injects into {@code container}. */
    public static String visibleDevices(String container) {
        return VISIBLE_DEVICES_PREFIX + containerKey(container);
    }

    /** Whether only the scheduler may write this key on a pod. */
    public static boolean reservedOnPods(String key) {
        return key.startsWith(VGPU_PREFIX) || key.startsWith(VISIBLE_DEVICES_PREFIX) || key.equals(FENCE);
    }

    private static String containerKey(String container) {
        if (container.length() <= LONGEST_CONTAINER) {
            return container;
        }
        String hash = HexFormat.of().formatHex(sha256(container)).substring(0, HASH_DIGITS);
        return container.substring(0, KEPT_OF_LONG_CONTAINER) + "-" + hash;
    }

    private static byte[] sha256(String text) {
        try {
            return MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }
}
