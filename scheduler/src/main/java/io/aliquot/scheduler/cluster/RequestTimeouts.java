package io.aliquot.scheduler.cluster;

import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.RequestConfigBuilder;
import java.time.Duration;

/** How long an answer of the API server is waited for. */
final class RequestTimeouts {
    private RequestTimeouts() {}

    /** A client that asks once and gives up after {@code patience}; whether to ask again is for the caller to decide. */
    static KubernetesClient oneTry(KubernetesClient kubernetes, Duration patience) {
        return kubernetes
                .newClient(new RequestConfigBuilder()
                        .withRequestTimeout((int) patience.toMillis())
                        .withRequestRetryBackoffLimit(0)
                        .build())
                .adapt(KubernetesClient.class);
    }
}
