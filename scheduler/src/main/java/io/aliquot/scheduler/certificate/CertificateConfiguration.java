package io.aliquot.scheduler.certificate;

import io.aliquot.scheduler.nodeagent.AcceptedClients;
import io.aliquot.scheduler.nodeagent.AgentTls;
import io.aliquot.scheduler.server.ports.TlsCertificate;
import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.TimeGauge;
import java.time.Clock;
import java.util.concurrent.TimeUnit;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class CertificateConfiguration {
    @Bean(initMethod = "start", destroyMethod = "close")
    CertificateKeeper certificateKeeper(
            KubernetesClient kubernetes,
            Settings settings,
            Clock clock,
            TlsCertificate ports,
            AcceptedClients accepted,
            AgentTls agents,
            MeterRegistry metrics) {
        var keeper = new CertificateKeeper(kubernetes, settings, clock, ports, accepted::accept, agents);
        TimeGauge.builder(
                        "aliquot.certificate.expiry.timestamp",
                        keeper,
                        TimeUnit.SECONDS,
                        CertificateConfiguration::expiry)
                .description(
                        "Unix time at which the certificate that this replica serves ends; NaN before it serves one")
                .register(metrics);
        Gauge.builder("aliquot.ca.bundle.current", keeper, CertificateConfiguration::current)
                .description(
                        "1 if the caBundles of the webhooks and of the APIService contain the certificate authority, 0 if"
                                + " not, NaN before this replica has looked")
                .register(metrics);
        return keeper;
    }

    private static double current(CertificateKeeper keeper) {
        return keeper.caBundlesAreCurrent().map(current -> current ? 1.0 : 0.0).orElse(Double.NaN);
    }

    private static double expiry(CertificateKeeper keeper) {
        return keeper.served()
                .map(certificate -> (double) certificate.expires().getEpochSecond())
                .orElse(Double.NaN);
    }
}
