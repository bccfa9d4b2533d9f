package io.aliquot.scheduler.server;

import io.aliquot.scheduler.settings.Settings;
import java.util.List;
import java.util.function.LongSupplier;
import org.apache.catalina.connector.Connector;
import org.apache.coyote.http11.AbstractHttp11Protocol;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.tomcat.servlet.TomcatServletWebServerFactory;
import org.springframework.boot.web.server.WebServerFactoryCustomizer;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** One Tomcat with a connector for each {@link PortPolicy} except the extender's, which {@link ExtenderPort} serves. */
@Configuration(proxyBeanMethods = false)
class ServerConfiguration {
    private static final int LONGEST_HEAD = 64 << 10;

    @Bean
    PortPolicyValve portPolicyValve() {
        return new PortPolicyValve();
    }

    @Bean
    TlsCertificate tlsCertificate() {
        return new TlsCertificate();
    }

    @Bean
    ConnectionDrain connectionDrain(PortPolicyValve valve, LongSupplier nanoTime) {
        return new ConnectionDrain(valve::closeAfterAnswer, () -> valve.connections(PortPolicy.WEBHOOKS), nanoTime);
    }

    @Bean
    ExtenderPort extenderPort(ExtenderHandler handler, ObjectProvider<Ports> chosen) {
        return new ExtenderPort(
                handler, chosen.getIfAvailable(Ports::configured).extender());
    }

    @Bean
    WebServerFactoryCustomizer<TomcatServletWebServerFactory> connectors(
            PortPolicyValve valve,
            ObjectProvider<Ports> chosen,
            TlsCertificate certificate,
            ObjectProvider<Settings> settings) {
        Ports ports = chosen.getIfAvailable(Ports::configured);
        Settings set = settings.getIfAvailable();
        return factory -> {
            factory.setPort(ports.health());
            factory.addConnectorCustomizers(connector -> open(valve, connector, PortPolicy.HEALTH, 4));

            Connector webhooks = encrypted(ports.webhooks(), certificate);
            open(valve, webhooks, PortPolicy.WEBHOOKS, 16);
            factory.addAdditionalConnectors(webhooks);

            if (set != null && !set.apiService().isEmpty()) {
                Connector api = encrypted(ports.api(), certificate);
                open(valve, api, PortPolicy.API, 8);
                // Tomcat refuses longer ones with an HTML page of its own.
                ((AbstractHttp11Protocol<?>) api.getProtocolHandler()).setMaxHttpRequestHeaderSize(LONGEST_HEAD);
                factory.addAdditionalConnectors(api);
            }
            factory.setEngineValves(List.of(valve));
        };
    }

    private static Connector encrypted(int port, TlsCertificate certificate) {
        var connector = new Connector();
        connector.setPort(port);
        connector.setScheme("https");
        connector.setSecure(true);
        certificate.encrypt(connector);
        return connector;
    }

    private static void open(PortPolicyValve valve, Connector connector, PortPolicy policy, int threads) {
        valve.put(connector, policy);
        var protocol = (AbstractHttp11Protocol<?>) connector.getProtocolHandler();
        protocol.setMaxThreads(threads);
        protocol.setMinSpareThreads(1);
        protocol.setMaxKeepAliveRequests(-1); // else Tomcat closes the connection at every hundredth request
        protocol.setConnectionTimeout((int) PortPolicy.READ_TIMEOUT.toMillis());
        protocol.setKeepAliveTimeout((int) PortPolicy.IDLE_TIMEOUT.toMillis());
        protocol.setMaxSwallowSize(PortPolicy.DISCARDED);
    }
}
