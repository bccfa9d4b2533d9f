package io.aliquot.scheduler.kubernetes;

import io.aliquot.api.FormatException;
import io.aliquot.scheduler.inspection.ApiException;
import io.aliquot.scheduler.inspection.PodLookup;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.Objects;
import java.util.Optional;

/** Reads pods by name. */
final class KubernetesPods implements PodLookup {
    /** A user of the HTTP API waits for this. */
    private static final Duration TIMEOUT = Duration.ofSeconds(4);

    private final KubernetesClient kubernetes;

    KubernetesPods(KubernetesClient kubernetes) {
        this.kubernetes = KubernetesConfiguration.withTimeout(kubernetes, TIMEOUT);
    }

    @Override
    public Optional<Pod> find(String namespace, String name) {
        io.fabric8.kubernetes.api.model.Pod pod;
        try {
            pod = kubernetes.pods().inNamespace(namespace).withName(name).get();
        } catch (KubernetesClientException e) {
            throw ApiException.unavailable("the API server did not return the pod, try again: " + e.getMessage());
        }
        if (pod == null) {
            return Optional.empty();
        }
        return Optional.of(new Pod(
                PodReader.id(pod),
                PodReader.node(pod),
                PodReader.ended(pod),
                Objects.requireNonNullElse(pod.getSpec().getSchedulerName(), ""),
                request(pod),
                Objects.requireNonNullElse(pod.getSpec().getPriority(), 0),
                !"Never".equals(pod.getSpec().getPreemptionPolicy()),
                PodReader.unschedulableMessage(pod)));
    }

    private static ParsedRequest request(io.fabric8.kubernetes.api.model.Pod pod) {
        try {
            return new ParsedRequest.Valid(PodReader.gpuRequest(pod));
        } catch (FormatException e) {
            return new ParsedRequest.Invalid(String.valueOf(e.getMessage()));
        }
    }
}
