package io.aliquot.api.tls;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.Collection;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/** Makes TLS contexts. The key stores never leave memory, so they have no password. */
public final class TlsContext {
    /** Of a client that presents nothing. */
    public static final KeyManager[] NO_KEY = {};

    private static final char[] PASSWORD = new char[0];

    private TlsContext() {}

    /** A context with these keys that trusts as {@code trust} does. */
    public static SSLContext of(KeyManager[] keys, TrustManager... trust) {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(keys, trust, null);
            return context;
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("cannot use TLS", e);
        }
    }

    /**
     * Presents a certificate.
     *
     * @throws GeneralSecurityException if the key is not that of the first certificate
     */
    public static KeyManager[] presenting(PrivateKey key, Certificate... chain) throws GeneralSecurityException {
        KeyStore store = emptyStore();
        store.setKeyEntry("own", key, PASSWORD, chain);
        var keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store, PASSWORD);
        return keys.getKeyManagers();
    }

    /** Trusts peers with one of these certificates, or with one that one of these has signed, under the names that they have. */
    public static TrustManager[] trusting(Collection<? extends Certificate> authorities)
            throws GeneralSecurityException {
        KeyStore store = emptyStore();
        int number = 0;
        for (Certificate authority : authorities) {
            store.setCertificateEntry("authority-" + number++, authority);
        }
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        return trust.getTrustManagers();
    }

    /**
     * Trusts peers by the certificates of a file in PEM, as {@link #trusting(Collection)} does.
     *
     * @throws GeneralSecurityException if the file has something else
     */
    public static TrustManager[] trusting(Path file) throws IOException, GeneralSecurityException {
        try (InputStream certificates = Files.newInputStream(file)) {
            return trusting(CertificateFactory.getInstance("X.509").generateCertificates(certificates));
        }
    }

    /** A key store in memory. */
    public static KeyStore emptyStore() throws GeneralSecurityException {
        try {
            var store = KeyStore.getInstance("PKCS12");
            store.load(null, null);
            return store;
        } catch (IOException e) {
            throw new IllegalStateException("cannot make a key store", e);
        }
    }
}
