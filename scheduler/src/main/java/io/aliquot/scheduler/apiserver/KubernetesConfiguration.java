package io.aliquot.scheduler.apiserver;

import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.RequestConfigBuilder;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.time.Clock;
import java.time.Duration;
import java.util.function.LongSupplier;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/**
 * fabric8's client of the API server, for all requests that no pod waits for, configured like kubectl: by the pod's service
 * account or a kubeconfig. Ours has the same configuration.
 */
@Configuration(proxyBeanMethods = false)
class KubernetesConfiguration {
    @Bean
    KubernetesClient kubernetes() {
        // Each component retries on its own schedule. By default fabric8 sleeps up to 51 s between ten tries, so a
        // component would notice a restarted API server a minute late.
        var config = new ConfigBuilder()
                .withRequestRetryBackoffLimit(0)
                // With HTTP/2 all requests share one connection, and keep using one that the network silently dropped.
                .withHttp2Disable(true)
                .build();
        return new KubernetesClientBuilder().withConfig(config).build();
    }

    @Bean
    Config config(KubernetesClient kubernetes) {
        return kubernetes.getConfiguration();
    }

    @Bean
    KubernetesSerialization serialization(KubernetesClient kubernetes) {
        return kubernetes.getKubernetesSerialization();
    }

    @Bean
    Events events(KubernetesClient kubernetes, Settings settings, Clock clock, LongSupplier nanoTime) {
        return new Events(kubernetes, settings.podName(), clock, nanoTime);
    }

    /** The same client with another request timeout. It sends each request once; the caller decides about retries. */
    static KubernetesClient withTimeout(KubernetesClient kubernetes, Duration timeout) {
        return kubernetes
                .newClient(new RequestConfigBuilder()
                        .withRequestTimeout((int) timeout.toMillis())
                        .withRequestRetryBackoffLimit(0)
                        .build())
                .adapt(KubernetesClient.class);
    }

    /** The message of the API server's Status, or that of the exception. */
    static String message(KubernetesClientException e) {
        return e.getStatus() != null && e.getStatus().getMessage() != null
                ? e.getStatus().getMessage()
                : String.valueOf(e.getMessage());
    }
}
