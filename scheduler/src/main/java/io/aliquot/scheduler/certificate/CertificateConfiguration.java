package io.aliquot.scheduler.certificate;

import io.aliquot.scheduler.nodeagent.AgentTls;
import io.aliquot.scheduler.server.TlsCertificate;
import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.client.KubernetesClient;
import java.time.Clock;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class CertificateConfiguration {
    @Bean(initMethod = "start", destroyMethod = "close")
    CertificateKeeper certificateKeeper(
            KubernetesClient kubernetes, Settings settings, Clock clock, TlsCertificate ports, AgentTls agents) {
        return new CertificateKeeper(kubernetes, settings, clock, ports, agents);
    }
}
