package io.aliquot.api.names;

import io.aliquot.api.format.Sha256;

/** Annotation keys, the objects that carry them and the programs or users that write them. */
public final class Annotations {
    /** On a pod, only by Bind: prefix of the key of a container's {@code Vgpus}; {@link #vgpu} makes the key. */
    public static final String VGPU_PREFIX = "aliquot.io/vgpu.";

    /**
     * On a pod, only by Bind: prefix of the key of the GPUs that NVIDIA's runtime injects into a container;
     * {@link #visibleDevices} makes the key.
     */
    public static final String VISIBLE_DEVICES_PREFIX = "aliquot.io/visible-devices.";

    /** On a Binding, which the API server copies to the pod: the {@code Fence} of the leader that bound it. */
    public static final String FENCE = "aliquot.io/fence";

    /** On a pod, only by the scheduler: the {@code Fence} of the leader that last resized it. */
    public static final String RESIZE_FENCE = "aliquot.io/resize-fence";

    /**
     * On a pod, only by the scheduler: the GPU memory in MiB that its containers hold at once of all GPUs together, for
     * programs that add up what pods use.
     */
    public static final String TOTAL_MEMORY_MIB = "aliquot.io/total-memory-mib";

    /** On a pod, only by the scheduler: the compute that its containers hold at once likewise; 100 is one GPU. */
    public static final String TOTAL_CORES = "aliquot.io/total-cores";

    /**
     * On a pod, by the scheduler: a former resourceVersion, at which the response to a write was lost, or at which the
     * kubelet did not show the pod a new Secret yet. Its only purpose is to give the pod a new resourceVersion.
     */
    public static final String BUMPED_VERSION = "aliquot.io/moved-on";

    /** On a node, only by its agent: the {@code Inventory}. */
    public static final String GPUS = "aliquot.io/gpus";

    /**
     * On a node, only by its agent: the names of the labels among {@code FeatureDiscovery.LABELS} that the agent
     * has written, with commas between them, or {@value #NO_GPU_LABELS} and why it writes none.
     */
    public static final String GPU_LABELS = "aliquot.io/gpu-labels";

    public static final String NO_GPU_LABELS = "none: ";

    /** On a node, only by the scheduler: the {@code CertificateDigest}s of the clients that its agent answers, with commas. */
    public static final String AGENT_CLIENTS = "aliquot.io/agent-clients";

    /** On one node, only by the scheduler: a timestamp that makes kube-scheduler retry Pending pods. */
    public static final String WAKE = "aliquot.io/wake";

    /** On a node, by its admin: the maximum number of vGPUs of a GPU, a {@code SlotCount}. */
    public static final String SLOTS = "aliquot.io/slots";

    /**
     * On a node, by its admin: the GPUs whose XID errors no longer count, {@value #ALL_GPUS} or UUIDs with commas between
     * them. It acts once, when it is set or changed.
     */
    public static final String CLEAR_GPU_ERRORS = "aliquot.io/clear-gpu-errors";

    public static final String ALL_GPUS = "all";

    /**
     * On a node, by its admin: {@code true} makes the node's agent close NVIDIA's driver until it is removed, and the node
     * takes no new pods.
     */
    public static final String RELEASE_DRIVER = "aliquot.io/release-driver";

    /** On a pod, by its user: the policy that selects its node, a {@code Placement}. */
    public static final String NODE_PLACEMENT = "aliquot.io/node-placement";

    /**
     * On a pod, by its user: the policy that selects its GPUs within the node, a {@code Placement} or
     * {@code topology}.
     */
    public static final String GPU_PLACEMENT = "aliquot.io/gpu-placement";

    /** On a pod, by its user: the only GPU models it accepts, a list of {@code ModelPattern}s. */
    public static final String USE_GPU_MODEL = "aliquot.io/use-gpu-model";

    /** On a pod, by its user: GPU models it does not accept, a list of {@code ModelPattern}s. */
    public static final String AVOID_GPU_MODEL = "aliquot.io/avoid-gpu-model";

    /** On a pod, by its user: the only GPUs it accepts, a list of UUIDs. */
    public static final String USE_GPU_UUID = "aliquot.io/use-gpu-uuid";

    /** On a pod, by its user: GPUs it does not accept, a list of UUIDs. */
    public static final String AVOID_GPU_UUID = "aliquot.io/avoid-gpu-uuid";

    /** On a pod, by its user: the only indexes of GPUs on their node that it accepts, a list of numbers from 0. */
    public static final String USE_GPU_INDEX = "aliquot.io/use-gpu-index";

    /** On a pod, by its user: indexes of GPUs on their node that it does not accept, a list of numbers from 0. */
    public static final String AVOID_GPU_INDEX = "aliquot.io/avoid-gpu-index";

    /** On a pod, by its user: whether a container's GPUs are in one NUMA domain, a {@code Numa}. */
    public static final String NUMA = "aliquot.io/numa";

    /** On a pod, by its user or the webhook: whether it may use more compute than its cores, a {@code CorePolicy}. */
    public static final String CORE_POLICY = "aliquot.io/core-policy";

    /** On a pod, by its user: the priority of its kernels on a GPU, a {@code Priority}. */
    public static final String PRIORITY = "aliquot.io/priority";

    /** On a pod, by its user or the webhook: the product whose meaning its resources have, a {@code Compatibility}. */
    public static final String COMPATIBILITY = "aliquot.io/compatibility";

    /** On a node, by its admin: how single GPUs are shared, in a {@code NodeSharing}. */
    public static final String GPU_SHARE = "aliquot.io/gpu-share";

    /**
     * On a namespace, by its admin: prefix of the keys of its {@code PodDefaults}: {@code aliquot.io/default-gpu},
     * {@code -memory}, {@code -memory-percentage}, {@code -cores} and {@code -core-policy}.
     */
    public static final String DEFAULT_PREFIX = "aliquot.io/default-";

    /** On a namespace, by its admin: the {@code CorePolicy}s that its pods may have, with commas between them. */
    public static final String ALLOWED_CORE_POLICIES = "aliquot.io/allowed-core-policies";

    /** On a namespace, by its admin: the {@code Priority}s that its pods may have, likewise. */
    public static final String ALLOWED_PRIORITIES = "aliquot.io/allowed-priorities";

    /** On a namespace, by its admin: {@code true} if a container that shares a GPU must request cores. */
    public static final String REQUIRE_CORES = "aliquot.io/require-cores";

    /** On a node, by its admin: GPUs that get no new vGPU, a list of UUIDs. */
    public static final String CORDON_GPUS = "aliquot.io/cordon-gpus";

    /** On a node, by its admin: the over-commit of memory, a {@code Scaling}. */
    public static final String MEMORY_SCALING = "aliquot.io/memory-scaling";

    /** On a node, by its admin: the over-commit of compute, a {@code Scaling}. */
    public static final String CORE_SCALING = "aliquot.io/core-scaling";

    // The name of a key has at most 63 characters (Kubernetes: Annotations, Syntax and character set);
    // "visible-devices." takes 16 of them.
    private static final int MAX_CONTAINER_LENGTH = 46;
    private static final int KEPT_PREFIX = 37;
    private static final int HASH_DIGITS = 8;

    private Annotations() {}

    /** The key of the container's {@code Vgpus}. */
    public static String vgpu(String container) {
        return VGPU_PREFIX + containerKey(container);
    }

    /** The key of the GPUs that NVIDIA's runtime injects into the container. */
    public static String visibleDevices(String container) {
        return VISIBLE_DEVICES_PREFIX + containerKey(container);
    }

    /** Whether only the scheduler may write this key on a pod; a policy in the API server enforces it. */
    public static boolean reservedOnPods(String key) {
        return key.startsWith(VGPU_PREFIX)
                || key.startsWith(VISIBLE_DEVICES_PREFIX)
                || key.equals(FENCE)
                || key.equals(RESIZE_FENCE)
                || key.equals(TOTAL_MEMORY_MIB)
                || key.equals(TOTAL_CORES);
    }

    private static String containerKey(String container) {
        if (container.length() <= MAX_CONTAINER_LENGTH) {
            return container;
        }
        String hash = Sha256.hex(container).substring(0, HASH_DIGITS);
        return container.substring(0, KEPT_PREFIX) + "-" + hash;
    }
}
