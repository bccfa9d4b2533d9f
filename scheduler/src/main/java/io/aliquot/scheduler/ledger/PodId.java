package io.aliquot.scheduler.ledger;

import io.aliquot.api.usage.PodContainer;

/** A pod. Only the uid identifies it, since another pod can get the same name. */
public record PodId(String namespace, String name, String uid) {
    /** Whether a container is the pod's. Its agent may not know the uid; a node runs one pod of a name at a time. */
    public boolean has(PodContainer container) {
        return container.uid().isEmpty()
                ? namespace.equals(container.namespace()) && name.equals(container.pod())
                : uid.equals(container.uid());
    }

    /** The form of a pod in every log line. */
    @Override
    public String toString() {
        return "pod=" + namespace + "/" + name + " uid=" + uid;
    }
}
