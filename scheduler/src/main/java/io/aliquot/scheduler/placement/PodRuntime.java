package io.aliquot.scheduler.placement;

/**
 * What a pod's spec asks of its node's container runtime.
 *
 * @param runtimeClass the name of the pod's RuntimeClass; empty: the runtime's default handler starts the pod
 * @param userNamespace whether the pod has a user namespace of its own ({@code hostUsers: false}, KEP-127)
 */
public record PodRuntime(String runtimeClass, boolean userNamespace) {
    /** The runtime's default handler, in the node's user namespace. */
    public static final PodRuntime DEFAULT = new PodRuntime("", false);
}
