package io.aliquot.scheduler.apiserver;

import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.api.model.coordination.v1.Lease;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.Optional;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.stereotype.Component;

/** Reads and writes kube-scheduler's Lease, apart from its watch. */
@Component
record KubernetesLease(KubernetesClient kubernetes, Settings settings) {
    /** Of kube-scheduler's leader election, by the chart's KubeSchedulerConfiguration. */
    static final String NAME = "aliquot-scheduler";

    private static final Logger LOG = LoggerFactory.getLogger(KubernetesLease.class);
    /** kube-scheduler's next renewal, 2 s later, brings the next try. */
    private static final Duration TIMEOUT = Duration.ofSeconds(1);

    /** Increments the transitions of the Lease if its version has not changed. */
    void replace(Lease later) {
        try {
            KubernetesConfiguration.withTimeout(kubernetes, TIMEOUT)
                    .resource(later)
                    .update();
        } catch (KubernetesClientException e) {
            LOG.warn("cannot increment the transitions of the Lease, trying again: {}", e.getMessage());
        }
    }

    /** The version of the Lease; empty if there is none, or it cannot be read. */
    Optional<String> version() {
        try {
            return Optional.ofNullable(kubernetes
                            .leases()
                            .inNamespace(settings.namespace())
                            .withName(NAME)
                            .get())
                    .map(lease -> lease.getMetadata().getResourceVersion());
        } catch (KubernetesClientException e) {
            return Optional.empty();
        }
    }
}
