package io.aliquot.scheduler.server;

import io.aliquot.scheduler.server.CertificateSource.Identity;
import java.io.IOException;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.SecureRandom;
import java.security.cert.X509Certificate;
import java.util.Optional;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLServerSocketFactory;
import javax.net.ssl.SSLSessionContext;
import javax.net.ssl.TrustManager;
import org.jspecify.annotations.Nullable;

/**
 * An SSL context for Tomcat whose certificate can change at any time. Each connection gets an engine of the JDK context
 * for the current certificate, so that nothing is reloaded, no file is read, and the port can open before the first
 * certificate exists.
 */
final class LiveSslContext implements org.apache.tomcat.util.net.SSLContext {
    private record Current(Optional<Identity> identity, SSLContext context) {}

    private final CertificateSource source;
    private volatile Current current = create(Optional.empty());

    LiveSslContext(CertificateSource source) {
        this.source = source;
    }

    private SSLContext context() {
        Optional<Identity> identity = source.current();
        Current latest = current;
        if (!latest.identity().equals(identity)) {
            latest = create(identity);
            current = latest;
        }
        return latest.context();
    }

    private static Current create(Optional<Identity> identity) {
        try {
            var store = KeyStore.getInstance("PKCS12");
            store.load(null, null);
            char[] password = new char[0]; // the key store never leaves memory
            if (identity.isPresent()) {
                Identity present = identity.get();
                store.setKeyEntry(
                        "webhooks", present.key(), password, present.chain().toArray(X509Certificate[]::new));
            }
            var keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keys.init(store, password);
            var context = SSLContext.getInstance("TLS");
            context.init(keys.getKeyManagers(), new TrustManager[0], null);
            return new Current(identity, context);
        } catch (GeneralSecurityException | IOException e) {
            throw new IllegalStateException("cannot use the webhooks' certificate", e);
        }
    }

    @Override
    public SSLEngine createSSLEngine() {
        return context().createSSLEngine();
    }

    @Override
    public SSLSessionContext getServerSessionContext() {
        return context().getServerSessionContext();
    }

    @Override
    public SSLServerSocketFactory getServerSocketFactory() {
        return context().getServerSocketFactory();
    }

    @Override
    public SSLParameters getSupportedSSLParameters() {
        return context().getSupportedSSLParameters();
    }

    @Override
    public X509Certificate @Nullable [] getCertificateChain(String alias) {
        return null; // Tomcat only logs it
    }

    @Override
    public X509Certificate[] getAcceptedIssuers() {
        return new X509Certificate[0];
    }

    @Override
    public void init(KeyManager[] keys, TrustManager[] trusted, SecureRandom random) {}

    @Override
    public void destroy() {}
}
