package io.aliquot.deviceplugin.usage;

import io.aliquot.api.usage.PodContainer;

/**
 * A container of a pod on this node.
 *
 * @param pod the pod's name
 * @param container the container's name, which may be that of an init container
 */
public record ContainerName(String namespace, String pod, String container) implements Comparable<ContainerName> {
    static ContainerName of(PodContainer container) {
        return new ContainerName(container.namespace(), container.pod(), container.container());
    }

    PodContainer ofPod(String uid) {
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
