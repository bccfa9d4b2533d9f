package io.aliquot.scheduler;

import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** The one client of the API server, configured as kubectl is: by the pod's service account or a kubeconfig. */
@Configuration(proxyBeanMethods = false)
class KubernetesConfiguration {
    @Bean
    KubernetesClient kubernetes() {
        return new KubernetesClientBuilder().build();
    }
}
