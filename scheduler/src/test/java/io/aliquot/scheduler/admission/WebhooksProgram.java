package io.aliquot.scheduler.admission;

import io.aliquot.scheduler.server.ports.KeyStores;
import io.aliquot.scheduler.server.ports.RandomPorts;
import io.aliquot.scheduler.server.ports.TlsCertificate;
import io.fabric8.kubernetes.client.Config;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;

/** The webhooks' port as a process of its own, so that its heap can be as small as the chart's. */
final class WebhooksProgram {
    static final String PORT = "webhooks on port ";

    private WebhooksProgram() {}

    public static void main(String[] args) throws Exception {
        // With as many threads as where the port serves the aggregated API, too.
        ConfigurableApplicationContext context = new SpringApplicationBuilder(WebhooksTest.Program.class)
                .properties(
                        "POD_NAME=aliquot-1",
                        "POD_NAMESPACE=aliquot",
                        "ALIQUOT_API_GROUP_SERVICE=aliquot-extension-api")
                // Reads no namespaces: the pods of its tests do not depend on them.
                .initializers(starting -> WebhooksTest.Program.reading(starting, Config.empty()))
                .run();
        KeyStore identity = KeyStores.selfSigned("localhost");
        context.getBean(TlsCertificate.class)
                .serve(
                        (PrivateKey) identity.getKey(KeyStores.ALIAS, KeyStores.PASSWORD.toCharArray()),
                        (X509Certificate) identity.getCertificate(KeyStores.ALIAS));
        System.out.println(PORT + RandomPorts.webhooks(context));
    }
}
