package io.aliquot.scheduler.server.ports;

import io.aliquot.scheduler.SystemClocks;
import java.util.Objects;
import org.apache.catalina.connector.Connector;
import org.springframework.boot.tomcat.TomcatWebServer;
import org.springframework.boot.web.server.servlet.context.ServletWebServerApplicationContext;
import org.springframework.context.ApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;

/**
 * For other packages' tests: the real server with the system's clocks, on free ports or on those that the system properties
 * {@code aliquot.ports.extender}, {@code aliquot.ports.webhooks} and {@code aliquot.ports.health} name.
 */
@Configuration(proxyBeanMethods = false)
@Import(SystemClocks.class)
public class RandomPorts {
    @Bean
    Ports ports() {
        return new Ports(
                Integer.getInteger("aliquot.ports.extender", 0),
                Integer.getInteger("aliquot.ports.webhooks", 0),
                Integer.getInteger("aliquot.ports.health", 0));
    }

    public static int extender(ApplicationContext context) {
        return port(context, 0);
    }

    public static int webhooks(ApplicationContext context) {
        return port(context, 1);
    }

    public static int health(ApplicationContext context) {
        return port(context, 2);
    }

    private static int port(ApplicationContext context, int connector) {
        return connectors(context)[connector].getLocalPort();
    }

    static Connector[] connectors(ApplicationContext context) {
        var server =
                (TomcatWebServer) Objects.requireNonNull(((ServletWebServerApplicationContext) context).getWebServer());
        return server.getTomcat().getService().findConnectors();
    }
}
