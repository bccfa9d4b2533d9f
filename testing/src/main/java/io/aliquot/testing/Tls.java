package io.aliquot.testing;

import java.io.IOException;
import java.net.Socket;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.X509Certificate;
import java.util.Collection;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;

/** TLS contexts of tests, with and without a certificate of one's own. */
public final class Tls {
    private static final KeyManager[] NONE = {};

    private Tls() {}

    /** Accepts every server, and checks no host name: for tests in which the certificate is not what is tested. */
    public static SSLContext anyServer() throws GeneralSecurityException {
        return context(NONE, new AnyServer());
    }

    /** Accepts every server, as {@link #anyServer()}. */
    public static SSLContext anyServer(PrivateKey key, X509Certificate certificate)
            throws GeneralSecurityException, IOException {
        return context(own(key, certificate), new AnyServer());
    }

    /** Accepts peers with one of these certificates, or with one that one of these has signed. */
    public static SSLContext trusting(Collection<? extends Certificate> trusted)
            throws GeneralSecurityException, IOException {
        return context(NONE, trust(trusted));
    }

    /** Accepts peers as {@link #trusting(Collection)} does. */
    public static SSLContext trusting(
            Collection<? extends Certificate> trusted, PrivateKey key, X509Certificate certificate)
            throws GeneralSecurityException, IOException {
        return context(own(key, certificate), trust(trusted));
    }

    private static SSLContext context(KeyManager[] own, TrustManager... trust) throws GeneralSecurityException {
        var context = SSLContext.getInstance("TLS");
        context.init(own, trust, null);
        return context;
    }

    private static KeyManager[] own(PrivateKey key, X509Certificate certificate)
            throws GeneralSecurityException, IOException {
        KeyStore store = emptyStore();
        store.setKeyEntry("own", key, new char[0], new Certificate[] {certificate});
        var keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store, new char[0]);
        return keys.getKeyManagers();
    }

    private static TrustManager[] trust(Collection<? extends Certificate> trusted)
            throws GeneralSecurityException, IOException {
        KeyStore store = emptyStore();
        int n = 0;
        for (Certificate certificate : trusted) {
            store.setCertificateEntry("certificate" + n++, certificate);
        }
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        return trust.getTrustManagers();
    }

    private static KeyStore emptyStore() throws GeneralSecurityException, IOException {
        var store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    private static final class AnyServer extends X509ExtendedTrustManager {
        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type) {}

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) {}

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) {}

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type) {}

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) {}

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine) {}

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }
}
