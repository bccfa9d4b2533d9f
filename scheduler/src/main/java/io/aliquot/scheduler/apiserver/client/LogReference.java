package io.aliquot.scheduler.apiserver.client;

import io.aliquot.scheduler.ledger.PodId;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.Pod;

/** The log argument for an object; a pod's {@link PodId}, from which the log line gets its fields. */
public final class LogReference {
    private LogReference() {}

    public static Object of(HasMetadata object) {
        return object instanceof Pod pod
                ? new PodId(
                        pod.getMetadata().getNamespace(),
                        pod.getMetadata().getName(),
                        pod.getMetadata().getUid())
                : object.getKind() + " " + object.getMetadata().getName();
    }
}
