package io.aliquot.scheduler.server;

import io.aliquot.scheduler.settings.Settings;
import java.util.List;
import java.util.Optional;
import org.apache.catalina.connector.Connector;
import org.apache.coyote.http11.AbstractHttp11Protocol;
import org.apache.tomcat.util.net.SSLHostConfig;
import org.apache.tomcat.util.net.SSLHostConfigCertificate;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.tomcat.servlet.TomcatServletWebServerFactory;
import org.springframework.boot.web.server.WebServerFactoryCustomizer;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** One Tomcat, a connector for each {@link PortPolicy} but the extender's. */
@Configuration(proxyBeanMethods = false)
class ServerConfiguration {
    private static final int LONGEST_HEAD = 64 << 10;

    @Bean
    PortPolicyValve doorValve() {
        return new PortPolicyValve();
    }

    @Bean
    ConnectionDrain farewell(PortPolicyValve valve) {
        return new ConnectionDrain(valve);
    }

    @Bean
    ExtenderPort extenderPort(ExtenderHandler verbs, ObjectProvider<Ports> chosen) {
        return new ExtenderPort(verbs, chosen.getIfAvailable(Ports::configured).extender());
    }

    @Bean
    WebServerFactoryCustomizer<TomcatServletWebServerFactory> doors(
            PortPolicyValve valve,
            ObjectProvider<Ports> chosen,
            ObjectProvider<CertificateSource> certificates,
            ObjectProvider<Settings> settings) {
        Ports ports = chosen.getIfAvailable(Ports::configured);
        Settings set = settings.getIfAvailable();
        return factory -> {
            factory.setPort(ports.health());
            factory.addConnectorCustomizers(connector -> open(valve, connector, PortPolicy.HEALTH, 4));

            CertificateSource certificate =
                    () -> Optional.ofNullable(certificates.getIfAvailable()).flatMap(CertificateSource::current);
            Connector webhooks = encrypted(ports.webhooks(), certificate);
            open(valve, webhooks, PortPolicy.WEBHOOKS, 16);
            factory.addAdditionalConnectors(webhooks);

            if (set != null && !set.apiService().isEmpty()) {
                Connector api = encrypted(ports.api(), certificate);
                open(valve, api, PortPolicy.API, 8);
                // What is longer Tomcat itself refuses, and not in our words.
                ((AbstractHttp11Protocol<?>) api.getProtocolHandler()).setMaxHttpRequestHeaderSize(LONGEST_HEAD);
                factory.addAdditionalConnectors(api);
            }
            factory.setEngineValves(List.of(valve));
        };
    }

    private static Connector encrypted(int port, CertificateSource certificate) {
        var connector = new Connector();
        connector.setPort(port);
        connector.setScheme("https");
        connector.setSecure(true);
        connector.setProperty("SSLEnabled", "true");
        connector.addSslHostConfig(tls(certificate));
        return connector;
    }

    private static void open(PortPolicyValve valve, Connector connector, PortPolicy door, int threads) {
        valve.put(connector, door);
        var protocol = (AbstractHttp11Protocol<?>) connector.getProtocolHandler();
        protocol.setMaxThreads(threads);
        protocol.setMinSpareThreads(1);
        protocol.setMaxKeepAliveRequests(-1); // else Tomcat closes the connection at every hundredth request
        protocol.setConnectionTimeout((int) PortPolicy.PATIENCE.toMillis());
        protocol.setKeepAliveTimeout((int) PortPolicy.IDLE.toMillis());
        protocol.setMaxSwallowSize(PortPolicy.SWALLOWED);
    }

    private static SSLHostConfig tls(CertificateSource source) {
        var config = new SSLHostConfig();
        config.setProtocols("TLSv1.2+TLSv1.3");
        var certificate = new SSLHostConfigCertificate(config, SSLHostConfigCertificate.DEFAULT_TYPE);
        certificate.setSslContext(new LiveSslContext(source));
        config.addCertificate(certificate);
        return config;
    }
}
