package io.aliquot.scheduler;

import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** The client of the API server that all parts share, configured like kubectl: by a service account or a kubeconfig. */
@Configuration(proxyBeanMethods = false)
class KubernetesConfiguration {
    @Bean
    KubernetesClient kubernetes() {
        // Each caller has retries of its own. By default the client also retries ten times, with pauses of up to 51 s,
        // and would notice a restarted API server up to a minute late.
        var config = new ConfigBuilder()
                .withRequestRetryBackoffLimit(0)
                // With HTTP/2 all requests share one connection, and keep using it after the network has dropped it
                // silently.
                .withHttp2Disable(true)
                .build();
        return new KubernetesClientBuilder().withConfig(config).build();
    }
}
