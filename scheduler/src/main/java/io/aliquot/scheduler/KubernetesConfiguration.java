package io.aliquot.scheduler;

import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** The one client of the API server, configured as kubectl is: by the pod's service account or a kubeconfig. */
@Configuration(proxyBeanMethods = false)
class KubernetesConfiguration {
    @Bean
    KubernetesClient kubernetes() {
        // Everybody here tries again in his own time. By default the client sleeps up to 51 s between ten tries, so
        // that
        // a part that is waiting would notice a restarted API server a minute late.
        var config = new ConfigBuilder()
                .withRequestRetryBackoffLimit(0)
                // With HTTP/2 all requests share a connection, and go on trying one that a network has silently
                // dropped.
                .withHttp2Disable(true)
                .build();
        return new KubernetesClientBuilder().withConfig(config).build();
    }
}
