package io.aliquot.api;

/** Annotation keys, and who writes them. */
public final class Annotations {
    /** On a pod, by Bind alone: what one container holds, {@link Vgpus} as text. Completed by {@link #vgpu}. */
    public static final String VGPU_PREFIX = "aliquot.io/vgpu.";

    /** On a pod, by Bind alone: what NVIDIA's runtime shall inject. Completed by {@link #visibleDevices}. */
    public static final String VISIBLE_DEVICES_PREFIX = "aliquot.io/visible-devices.";

    /** On a Binding, and so on the pod: the {@link Fence} under which it was bound. */
    public static final String FENCE = "aliquot.io/fence";

    /** On a pod, by the scheduler alone: the {@link Fence} under which it was resized last. */
    public static final String RESIZE_FENCE = "aliquot.io/resize-fence";

    /**
     * On a pod, by the scheduler: the version of the pod for which the answer to a write was lost. It makes no difference
     * but that the pod's version is a later one.
     */
    public static final String MOVED_ON = "aliquot.io/moved-on";

    /** On a node, by its agent alone: the {@link Inventory}. */
    public static final String GPUS = "aliquot.io/gpus";

    /** On one node, by the scheduler alone: a timestamp that makes kube-scheduler retry waiting pods. */
    public static final String WAKE = "aliquot.io/wake";

    /** On a node, by its admin: vGPUs that a GPU is split into at most. */
    public static final String SLOTS = "aliquot.io/slots";

    /** On a pod, by its user: how to choose its node, a {@link Placement}. */
    public static final String NODE_PLACEMENT = "aliquot.io/node-placement";

    /**
     * On a pod, by its user: how to choose its GPUs within the node, a {@link Placement} or {@value PlacementPreferences#TOPOLOGY}.
     */
    public static final String GPU_PLACEMENT = "aliquot.io/gpu-placement";

    /** On a pod, by its user: the only models it takes, a list of {@link ModelPattern}s. */
    public static final String USE_GPU_MODEL = "aliquot.io/use-gpu-model";

    /** On a pod, by its user: models it doesn't take, a list of {@link ModelPattern}s. */
    public static final String AVOID_GPU_MODEL = "aliquot.io/avoid-gpu-model";

    /** On a pod, by its user: the only GPUs it takes, a list of UUIDs. */
    public static final String USE_GPU_UUID = "aliquot.io/use-gpu-uuid";

    /** On a pod, by its user: GPUs it doesn't take, a list of UUIDs. */
    public static final String AVOID_GPU_UUID = "aliquot.io/avoid-gpu-uuid";

    /** On a pod, by its user: the only indexes that a GPU of it has on its node, a list of numbers from 0. */
    public static final String USE_GPU_INDEX = "aliquot.io/use-gpu-index";

    /** On a pod, by its user: indexes that no GPU of it has on its node, a list of numbers from 0. */
    public static final String AVOID_GPU_INDEX = "aliquot.io/avoid-gpu-index";

    /** On a pod, by its user: whether a container's GPUs hang on one NUMA domain, a {@link Numa}. */
    public static final String NUMA = "aliquot.io/numa";

    /** On a pod, by its user: what its share of compute means while others are idle, a {@link CorePolicy}. */
    public static final String CORE_POLICY = "aliquot.io/core-policy";

    /** On a pod, by its user: whose kernels go first on a GPU, a {@link Priority}. */
    public static final String PRIORITY = "aliquot.io/priority";

    /** On a pod, by its user or our webhook: whose meaning its resources have, a {@link Compatibility}. */
    public static final String COMPATIBILITY = "aliquot.io/compatibility";

    /** On a node, by its admin: GPUs that take no new vGPU, a list of UUIDs. */
    public static final String CORDON_GPUS = "aliquot.io/cordon-gpus";

    /** On a node, by its admin: memory sold per memory there is, a {@link Scaling}. */
    public static final String MEMORY_SCALING = "aliquot.io/memory-scaling";

    /** On a node, by its admin: compute sold per compute there is, a {@link Scaling}. */
    public static final String CORE_SCALING = "aliquot.io/core-scaling";

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
        return key.startsWith(VGPU_PREFIX)
                || key.startsWith(VISIBLE_DEVICES_PREFIX)
                || key.equals(FENCE)
                || key.equals(RESIZE_FENCE);
    }

    private static String containerKey(String container) {
        if (container.length() <= LONGEST_CONTAINER) {
            return container;
        }
        String hash = Sha256.hex(container).substring(0, HASH_DIGITS);
        return container.substring(0, KEPT_OF_LONG_CONTAINER) + "-" + hash;
    }
}
