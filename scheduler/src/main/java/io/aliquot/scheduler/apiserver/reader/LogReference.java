package io.aliquot.scheduler.apiserver.reader;

import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.Pod;

/** The log argument for an object; a pod's {@code PodId}, from which the log line gets its fields. */
public final class LogReference {
    private LogReference() {}

    public static Object of(HasMetadata object) {
        return object instanceof Pod pod
                ? PodReader.id(pod)
                : object.getKind() + " " + object.getMetadata().getName();
    }
}
