package io.aliquot.scheduler.kubernetes;

import io.fabric8.kubernetes.api.model.Pod;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.ConcurrentHashMap;

/** The versions of pods that are not bound, as the watch tells; what a Binding is conditional on. Thread-safe. */
final class UnboundPodVersions {
    private final Map<String, Long> versions = new ConcurrentHashMap<>();

    /** A pod is new or has changed. */
    void present(Pod pod) {
        if (PodReader.node(pod).isEmpty() && !PodReader.ended(pod)) {
            versions.put(pod.getMetadata().getUid(), PodReader.version(pod));
        } else {
            versions.remove(pod.getMetadata().getUid());
        }
    }

    /** A pod is no more. */
    void gone(String uid) {
        versions.remove(uid);
    }

    OptionalLong version(String uid) {
        Long version = versions.get(uid);
        return version == null ? OptionalLong.empty() : OptionalLong.of(version);
    }
}
