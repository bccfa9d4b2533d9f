package io.aliquot.scheduler.apiserver;

import io.aliquot.scheduler.apiserver.reader.PodReader;
import io.fabric8.kubernetes.api.model.Pod;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.stereotype.Component;

/** The resource versions of unbound pods from the watch; a Binding has one as its precondition. Thread-safe. */
@Component
final class UnboundPodVersions {
    private final Map<String, Long> versions = new ConcurrentHashMap<>();

    void onPresent(Pod pod) {
        if (PodReader.node(pod).isEmpty() && !PodReader.ended(pod)) {
            versions.put(pod.getMetadata().getUid(), PodReader.version(pod));
        } else {
            versions.remove(pod.getMetadata().getUid());
        }
    }

    void onGone(String uid) {
        versions.remove(uid);
    }

    OptionalLong version(String uid) {
        Long version = versions.get(uid);
        return version == null ? OptionalLong.empty() : OptionalLong.of(version);
    }
}
