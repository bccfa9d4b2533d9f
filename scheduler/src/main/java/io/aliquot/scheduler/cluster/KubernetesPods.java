package io.aliquot.scheduler.cluster;

import io.aliquot.api.FormatException;
import io.aliquot.scheduler.inspection.ApiServerUnavailableException;
import io.aliquot.scheduler.inspection.PodLookup;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.Objects;
import java.util.Optional;

/** Reads pods by name. */
final class KubernetesPods implements PodLookup {
    /** Whoever asks over HTTP waits for this. */
    private static final Duration PATIENCE = Duration.ofSeconds(4);

    private final KubernetesClient kubernetes;

    KubernetesPods(KubernetesClient kubernetes) {
        this.kubernetes = RequestTimeouts.oneTry(kubernetes, PATIENCE);
    }

    @Override
    public Optional<Pod> find(String namespace, String name) throws ApiServerUnavailableException {
        io.fabric8.kubernetes.api.model.Pod pod;
        try {
            pod = kubernetes.pods().inNamespace(namespace).withName(name).get();
        } catch (KubernetesClientException e) {
            throw new ApiServerUnavailableException(String.valueOf(e.getMessage()), e);
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
                PodReader.verdict(pod)));
    }

    private static ParsedRequest request(io.fabric8.kubernetes.api.model.Pod pod) {
        try {
            return new ParsedRequest.Valid(PodReader.ask(pod));
        } catch (FormatException e) {
            return new ParsedRequest.Invalid(String.valueOf(e.getMessage()));
        }
    }
}
