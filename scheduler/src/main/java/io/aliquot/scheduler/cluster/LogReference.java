package io.aliquot.scheduler.cluster;

import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.Pod;

/** What a line of the log calls an object: a pod by its {@link io.aliquot.scheduler.ledger.PodId}, from which the line gets its fields. */
final class LogReference {
    private LogReference() {}

    static Object of(HasMetadata object) {
        return object instanceof Pod pod
                ? PodReader.id(pod)
                : object.getKind() + " " + object.getMetadata().getName();
    }
}
