package io.aliquot.api.names;

/** Labels on nodes and namespaces, and the values they may have. */
public final class Labels {
    /** On a node: the default of {@code NodeLabel}, with the value {@value #GPU_ON}. */
    public static final String GPU = "gpu";

    public static final String GPU_ON = "on";

    /**
     * On a node, only by its agent: with {@value #NODE_AGENT_ON} the agent stays when the {@code NodeLabel} is removed, until no pod
     * holds a slot of the node any more.
     */
    public static final String NODE_AGENT = "aliquot.io/node-agent";

    public static final String NODE_AGENT_ON = "on";

    /**
     * On a node: the GPU Operator runs no device plugin there if the value is {@value #OPERATOR_PLUGIN_OFF}
     * (github.com/NVIDIA/gpu-operator, controllers/state_manager.go).
     */
    public static final String OPERATOR_PLUGIN = "nvidia.com/gpu.deploy.device-plugin";

    public static final String OPERATOR_PLUGIN_OFF = "false";

    /** On a node: the same for NVIDIA's driver of dynamic resource allocation (GPU Operator 26.7 and later). */
    public static final String OPERATOR_DRA_DRIVER = "nvidia.com/gpu.deploy.dra-driver";

    /** On a node: the policy that selects GPUs within the node, a {@code Placement}. */
    public static final String PLACEMENT = "aliquot.io/placement";

    /** On a node: how its GPUs are shared, a {@code SharingMode}. */
    public static final String SHARE = "aliquot.io/share";

    /**
     * On a namespace or a pod: with {@value #OURS_ON} a pod that requests {@code nvidia.com/gpu} is
     * Aliquot's.
     */
    public static final String OURS = "aliquot.io/gpu";

    public static final String OURS_ON = "on";

    /** On a namespace: with {@value #WEBHOOK_IGNORE} no webhook is called for its pods. */
    public static final String WEBHOOK = "aliquot.io/webhook";

    public static final String WEBHOOK_IGNORE = "ignore";

    /**
     * On a Binding, by the scheduler: the policy {@code aliquot-fence} selects Bindings with it. From Kubernetes 1.35 on the
     * API server copies it to the pod.
     */
    public static final String FENCED = "topology.aliquot.io/fenced";

    public static final String FENCED_TRUE = "true";

    /** On a pod, by the scheduler with the pod's first resize: the policy {@code aliquot-resize-fence} selects it. */
    public static final String RESIZED = "aliquot.io/resized";

    public static final String RESIZED_TRUE = "true";

    /** On a node: ACK's name for {@link #SHARE}, with other values. */
    public static final String ACK_SHARE = "ack.node.gpu.schedule";

    /** On a node: ACK's name for {@link #PLACEMENT}, with the same values. */
    public static final String ACK_PLACEMENT = "ack.node.gpu.placement";

    /**
     * Not a label, but the key of a taint by which an administrator keeps pods of others off an autoscaled group of nodes;
     * the webhook lets pods with shares tolerate it.
     */
    public static final String SHARED_TAINT = "aliquot.io/shared";

    private Labels() {}
}
