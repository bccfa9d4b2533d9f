package io.aliquot.scheduler.server;

import java.io.IOException;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import javax.crypto.spec.SecretKeySpec;
import org.apache.catalina.connector.Connector;
import org.apache.commons.logging.LogFactory;
import org.springframework.boot.ssl.SslBundle;
import org.springframework.boot.ssl.SslBundleKey;
import org.springframework.boot.ssl.SslOptions;
import org.springframework.boot.ssl.SslStoreBundle;
import org.springframework.boot.tomcat.SslConnectorCustomizer;
import org.springframework.boot.web.server.Ssl.ClientAuth;
import org.springframework.boot.web.server.context.WebServerInitializedEvent;
import org.springframework.context.event.EventListener;

/**
 * The certificate of the TLS ports. Tomcat uses a new certificate from the next connection on; without one, handshakes
 * fail. Thread-safe.
 */
public final class TlsCertificate {
    private static final String PASSWORD = "none"; // the key stores never leave memory
    private static final SslOptions PROTOCOLS = SslOptions.of(null, new String[] {"TLSv1.2", "TLSv1.3"});

    private final List<SslConnectorCustomizer> connectors = new ArrayList<>();
    // Tomcat refuses an empty key store. A key without a certificate is never served.
    private SslBundle current = bundle(new KeyStore.SecretKeyEntry(new SecretKeySpec(new byte[16], "AES")));

    private boolean portsAreOpen;

    /** Encrypts the connections of a connector. */
    synchronized void encrypt(Connector connector) {
        var ssl = new SslConnectorCustomizer(LogFactory.getLog(TlsCertificate.class), connector, ClientAuth.NONE);
        ssl.customize(current, Map.of());
        connectors.add(ssl);
    }

    public synchronized void serve(PrivateKey key, X509Certificate certificate) {
        current = bundle(new KeyStore.PrivateKeyEntry(key, new Certificate[] {certificate}));
        if (portsAreOpen) {
            update();
        }
    }

    /** Tomcat never makes a TLS context for a certificate that it is given while it opens the port. */
    @EventListener(WebServerInitializedEvent.class)
    public synchronized void portsAreOpen() {
        portsAreOpen = true;
        update();
    }

    private void update() {
        connectors.forEach(connector -> connector.update(null, current));
    }

    private static SslBundle bundle(KeyStore.Entry key) {
        try {
            var store = KeyStore.getInstance("PKCS12");
            store.load(null, null);
            store.setEntry("tls", key, new KeyStore.PasswordProtection(PASSWORD.toCharArray()));
            return SslBundle.of(SslStoreBundle.of(store, PASSWORD, null), SslBundleKey.NONE, PROTOCOLS);
        } catch (GeneralSecurityException | IOException e) {
            throw new IllegalStateException("cannot use the webhooks' certificate", e);
        }
    }
}
