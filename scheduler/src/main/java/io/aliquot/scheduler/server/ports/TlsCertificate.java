package io.aliquot.scheduler.server.ports;

import io.aliquot.api.tls.TlsContext;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import javax.crypto.spec.SecretKeySpec;
import javax.net.ssl.SSLContext;
import org.apache.catalina.connector.Connector;
import org.apache.coyote.http11.AbstractHttp11Protocol;
import org.apache.tomcat.util.net.SSLHostConfig;
import org.apache.tomcat.util.net.SSLHostConfigCertificate;
import org.springframework.boot.web.server.context.WebServerInitializedEvent;
import org.springframework.context.event.EventListener;

/**
 * The certificate of the TLS ports, and of this replica as a client of another one. Tomcat uses a new certificate from
 * the next connection on; without one, handshakes fail. Thread-safe.
 */
public final class TlsCertificate {
    private static final String PASSWORD = "none"; // the key stores never leave memory
    private static final String PROTOCOLS = "TLSv1.2+TLSv1.3";

    /** Of TLS 1.2, to be resumed. Each holds a certificate of any size that the client chose; the default is 20,480. */
    private static final int MOST_SESSIONS = 64;

    /** A connector and whether it asks clients for a certificate. */
    private record Port(Connector connector, boolean asksClients) {}

    private final List<Port> ports = new ArrayList<>();
    private volatile Optional<PinnedTls.Identity> own = Optional.empty();
    /** The certificates of the replicas. */
    private volatile Set<X509Certificate> trusted = Set.of();
    // Tomcat refuses an empty key store. A key without a certificate is never served.
    private KeyStore current = store(new KeyStore.SecretKeyEntry(new SecretKeySpec(new byte[16], "AES")));

    private boolean portsAreOpen;

    /**
     * Encrypts the connections of a connector.
     *
     * @param asksClients whether clients may present a certificate, whichever: see {@link AnyPeer}
     */
    synchronized void encrypt(Connector connector, boolean asksClients) {
        ((AbstractHttp11Protocol<?>) connector.getProtocolHandler()).setSSLEnabled(true);
        connector.setScheme("https");
        connector.setSecure(true);
        var port = new Port(connector, asksClients);
        ports.add(port);
        use(port);
    }

    public synchronized void serve(PrivateKey key, X509Certificate certificate) {
        current = store(new KeyStore.PrivateKeyEntry(key, new Certificate[] {certificate}));
        own = Optional.of(new PinnedTls.Identity(key, certificate));
        if (portsAreOpen) {
            ports.forEach(this::use);
        }
    }

    /** Sets the certificates that replicas serve: the current one and, after a renewal, its predecessor. */
    public void trustReplicas(Collection<X509Certificate> certificates) {
        trusted = Set.copyOf(certificates);
    }

    /** Whether a client that presented this certificate is a replica. */
    public boolean isReplica(X509Certificate peer) {
        return own.filter(one -> one.certificate().equals(peer)).isPresent() || trusted.contains(peer);
    }

    /**
     * Mutual TLS of a client of other replicas: it presents the certificate that this replica serves and accepts only
     * one of the replicas'. It follows later calls of {@link #serve} and {@link #trustReplicas}.
     */
    public SSLContext clientOfReplicas() {
        return PinnedTls.client(() -> own, certificate -> {
            if (!isReplica(certificate)) {
                throw new CertificateException("expected the certificate of another replica, found another one");
            }
            certificate.checkValidity();
        });
    }

    /** Tomcat never makes a TLS context for a certificate that it is given while it opens the port. */
    @EventListener(WebServerInitializedEvent.class)
    public synchronized void portsAreOpen() {
        portsAreOpen = true;
        ports.forEach(this::use);
    }

    private void use(Port port) {
        var protocol = (AbstractHttp11Protocol<?>) port.connector().getProtocolHandler();
        var config = new SSLHostConfig();
        config.setHostName(protocol.getDefaultSSLHostConfigName());
        config.setProtocols(PROTOCOLS);
        config.setSessionCacheSize(MOST_SESSIONS);
        if (port.asksClients()) {
            config.setCertificateVerification("optional");
            config.setTrustManagerClassName(AnyPeer.class.getName());
        }
        var certificate = new SSLHostConfigCertificate(config, SSLHostConfigCertificate.Type.UNDEFINED);
        certificate.setCertificateKeystorePassword(PASSWORD);
        certificate.setCertificateKeystore(current);
        config.addCertificate(certificate);
        protocol.addSslHostConfig(config, true);
    }

    private static KeyStore store(KeyStore.Entry key) {
        try {
            KeyStore store = TlsContext.emptyStore();
            store.setEntry("tls", key, new KeyStore.PasswordProtection(PASSWORD.toCharArray()));
            return store;
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("cannot use the webhooks' certificate", e);
        }
    }
}
