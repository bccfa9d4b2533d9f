package io.aliquot.api;

/** Labels on nodes and namespaces, and the values they may have. */
public final class Labels {
    /** On a node: {@value #GPU_ON} takes part; taken away, no new share lands there and running ones stay. */
    public static final String GPU = "gpu";

    public static final String GPU_ON = "on";

    /** On a node: which GPU of the node a vGPU goes to, a {@link Placement}. */
    public static final String PLACEMENT = "aliquot.io/placement";

    /** On a node: what its GPUs are shared by, a {@link SharingMode}. */
    public static final String SHARE = "aliquot.io/share";

    /** On a namespace: {@value #WEBHOOK_IGNORE} leaves its pods alone. */
    public static final String WEBHOOK = "aliquot.io/webhook";

    public static final String WEBHOOK_IGNORE = "ignore";

    /** On a node, ACK's name for {@link #SHARE}, with words of its own. */
    public static final String ACK_SHARE = "ack.node.gpu.schedule";

    /** On a node, ACK's name for {@link #PLACEMENT}, with the same values. */
    public static final String ACK_PLACEMENT = "ack.node.gpu.placement";

    private Labels() {}
}
