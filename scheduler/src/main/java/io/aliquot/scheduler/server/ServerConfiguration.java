package io.aliquot.scheduler.server;

import io.aliquot.scheduler.settings.Settings;
import java.net.InetAddress;
import java.util.List;
import java.util.function.LongSupplier;
import org.apache.catalina.connector.Connector;
import org.apache.coyote.http11.AbstractHttp11Protocol;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.tomcat.servlet.TomcatServletWebServerFactory;
import org.springframework.boot.web.server.WebServerFactoryCustomizer;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** One Tomcat with a connector for each {@link PortPolicy}. */
@Configuration(proxyBeanMethods = false)
public class ServerConfiguration {
    /** At most this many threads answer requests to the aggregated API; the others stay free for admission reviews. */
    public static final int EXTENSION_API_THREADS = 16;

    /** In bytes. The API server adds a user's groups and extra fields to the head of a request. */
    private static final int LONGEST_HEAD = 64 << 10;

    private static final int WEBHOOK_THREADS = 16;
    /** kube-scheduler sends the requests of one pod after the other, and those of the Bindings in progress beside them. */
    private static final int EXTENDER_THREADS = 64;

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
        return new ConnectionDrain(
                valve::closeAfterAnswer,
                () -> valve.connections(PortPolicy.WEBHOOKS) + valve.connections(PortPolicy.WEBHOOKS_AND_API),
                nanoTime);
    }

    @Bean
    WebServerFactoryCustomizer<TomcatServletWebServerFactory> connectors(
            PortPolicyValve valve,
            ObjectProvider<Ports> chosen,
            TlsCertificate certificate,
            ObjectProvider<Settings> settings) {
        Ports ports = chosen.getIfAvailable(() -> Ports.STANDARD);
        Settings set = settings.getIfAvailable();
        return factory -> {
            factory.setPort(ports.health());
            factory.addConnectorCustomizers(connector -> open(valve, connector, PortPolicy.HEALTH, 4));

            boolean servesApi = set != null && !set.apiGroupService().isEmpty();
            Connector webhooks = encrypted(ports.webhooks(), certificate, servesApi);
            if (servesApi) {
                open(valve, webhooks, PortPolicy.WEBHOOKS_AND_API, WEBHOOK_THREADS + EXTENSION_API_THREADS);
                longHeads(webhooks);
            } else {
                open(valve, webhooks, PortPolicy.WEBHOOKS, WEBHOOK_THREADS);
            }
            factory.addAdditionalConnectors(webhooks, extender(valve, ports.extender()));
            factory.setEngineValves(List.of(valve));
        };
    }

    private static Connector extender(PortPolicyValve valve, int port) {
        var connector = new Connector();
        connector.setPort(port);
        ((AbstractHttp11Protocol<?>) connector.getProtocolHandler()).setAddress(InetAddress.getLoopbackAddress());
        open(valve, connector, PortPolicy.EXTENDER, EXTENDER_THREADS);
        return connector;
    }

    private static Connector encrypted(int port, TlsCertificate certificate, boolean asksClients) {
        var connector = new Connector();
        connector.setPort(port);
        certificate.encrypt(connector, asksClients);
        return connector;
    }

    /** Tomcat refuses longer ones with an HTML page of its own. */
    private static void longHeads(Connector connector) {
        ((AbstractHttp11Protocol<?>) connector.getProtocolHandler()).setMaxHttpRequestHeaderSize(LONGEST_HEAD);
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
