package io.aliquot.scheduler.server.ports;

import io.aliquot.api.ports.ApiServers;
import io.aliquot.scheduler.settings.Settings;
import java.net.InetAddress;
import java.util.List;
import java.util.function.LongSupplier;
import org.apache.catalina.connector.Connector;
import org.apache.coyote.http11.AbstractHttp11Protocol;
import org.apache.coyote.http11.Http11NioProtocol;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.tomcat.servlet.TomcatServletWebServerFactory;
import org.springframework.boot.web.server.WebServerFactoryCustomizer;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** One Tomcat with a connector for each {@link PortPolicy}. */
@Configuration(proxyBeanMethods = false)
public class ServerConfiguration {
    /** At most this many requests to the aggregated API are answered at the same time. */
    public static final int EXTENSION_API_THREADS = 16;

    /** Attribute of a request: the client has proved by its certificate to be an API server or another replica. */
    public static final String AUTHENTICATED = "io.aliquot.authenticated";

    /** In bytes. The API server adds a user's groups and extra fields to the head of a request. */
    private static final int LONGEST_HEAD = 64 << 10;

    /**
     * In bytes of the largest heap: one connection of a client that need not be authenticated for each. 256 connections with
     * 96 MiB, of which they use a third if all are in requests.
     */
    private static final int HEAP_PER_CONNECTION = 384 << 10;

    /** Of probes and of Prometheus. */
    private static final int HEALTH_CONNECTIONS = 256;
    /** Of those objects of Tomcat that serve requests, one at a time, this many are kept for later ones. */
    private static final int KEPT_PROCESSORS = 16;

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
        return new ConnectionDrain(valve::closeAfterAnswer, valve::webhooksConnections, nanoTime);
    }

    @Bean
    WebServerFactoryCustomizer<TomcatServletWebServerFactory> connectors(
            PortPolicyValve valve,
            ObjectProvider<Ports> chosen,
            TlsCertificate certificate,
            ObjectProvider<Settings> settings,
            LongSupplier nanoTime) {
        Ports ports = chosen.getIfAvailable(() -> Ports.STANDARD);
        Settings set = settings.getIfAvailable();
        return factory -> {
            factory.setPort(ports.extender());
            factory.setAddress(InetAddress.getLoopbackAddress());
            factory.addConnectorCustomizers(connector -> {
                valve.put(connector, PortPolicy.EXTENDER);
                var protocol = (AbstractHttp11Protocol<?>) connector.getProtocolHandler();
                protocol.setMaxThreads(EXTENDER_THREADS);
                protocol.setMinSpareThreads(1);
                protocol.setMaxSwallowSize(PortPolicy.DISCARDED);
                keepConnections(protocol);
            });

            boolean servesApi = set != null && !set.apiGroupService().isEmpty();
            PortPolicy policy = servesApi ? PortPolicy.WEBHOOKS_AND_API : PortPolicy.WEBHOOKS;
            long most = Runtime.getRuntime().maxMemory() / HEAP_PER_CONNECTION;
            ApiServers apiServers = set == null ? ApiServers.UNKNOWN : set.apiServers();
            Connector webhooks = open(
                    valve,
                    ports.webhooks(),
                    policy,
                    new PublicEndpoint((int) Math.min(most, 4096), apiServers, nanoTime));
            certificate.encrypt(webhooks, servesApi);
            if (servesApi) {
                longHeads(webhooks);
            }
            Connector health = open(
                    valve,
                    ports.health(),
                    PortPolicy.HEALTH,
                    new PublicEndpoint(HEALTH_CONNECTIONS, ApiServers.UNKNOWN, nanoTime));
            factory.addAdditionalConnectors(webhooks, health);
            factory.setEngineValves(List.of(valve));
            factory.setBackgroundProcessorDelay(1);
        };
    }

    /** Tomcat refuses longer ones with an HTML page of its own. */
    private static void longHeads(Connector connector) {
        ((AbstractHttp11Protocol<?>) connector.getProtocolHandler()).setMaxHttpRequestHeaderSize(LONGEST_HEAD);
    }

    /** A port that every pod can reach. */
    private static Connector open(PortPolicyValve valve, int port, PortPolicy policy, PublicEndpoint endpoint) {
        var protocol = new Http11NioProtocol(endpoint);
        protocol.setProcessorCache(KEPT_PROCESSORS);
        keepConnections(protocol);
        var connector = new Connector(protocol);
        connector.setPort(port);
        valve.put(connector, policy, endpoint);
        return connector;
    }

    private static void keepConnections(AbstractHttp11Protocol<?> protocol) {
        protocol.setMaxKeepAliveRequests(-1); // else Tomcat closes the connection at every hundredth request
        protocol.setConnectionTimeout((int) PortPolicy.READ_TIMEOUT.toMillis());
        protocol.setKeepAliveTimeout((int) PortPolicy.IDLE_TIMEOUT.toMillis());
    }
}
