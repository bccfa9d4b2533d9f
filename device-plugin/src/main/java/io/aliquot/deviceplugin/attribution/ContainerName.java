package io.aliquot.deviceplugin.attribution;

import io.aliquot.api.usage.PodContainer;

/**
 * A container of a pod on this node.
 *
 * @param pod the pod's name
 * @param container the container's name, which may be that of an init container
 */
public record ContainerName(String namespace, String pod, String container) implements Comparable<ContainerName> {
    /** The name of a container of a report. */
    public static ContainerName of(PodContainer container) {
        return new ContainerName(container.namespace(), container.pod(), container.container());
    }

    /** The container of this name in the pod with this UID. */
    public PodContainer ofPod(String uid) {
        return new PodContainer(namespace, pod, uid, container);
    }

    @Override
    public int compareTo(ContainerName other) {
        return toString().compareTo(other.toString());
    }

    @Override
    public String toString() {
        return namespace + "/" + pod + "/" + container;
    }
}
