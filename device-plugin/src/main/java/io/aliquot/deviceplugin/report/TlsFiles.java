package io.aliquot.deviceplugin.report;

import io.aliquot.api.names.FormatException;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * The content of the Secret's folder: {@code tls.crt} and {@code tls.key}, with which the agent serves, and {@code ca.crt},
 * the certificates of the clients that it accepts, each as it is.
 */
record TlsFiles(String certificate, String key, String clients) {
    private static final Pattern PRIVATE_KEY =
            Pattern.compile("-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\\s]+)-----END PRIVATE KEY-----");

    /** Reads the files; they may be of two versions of the Secret if they change meanwhile. */
    static TlsFiles read(Path folder) throws IOException {
        return new TlsFiles(text(folder, "tls.crt"), text(folder, "tls.key"), text(folder, "ca.crt"));
    }

    private static String text(Path folder, String file) throws IOException {
        return Files.readString(folder.resolve(file), StandardCharsets.ISO_8859_1);
    }

    /**
     * What a server needs.
     *
     * @throws FormatException if a file has other content, or the key is not the certificate's
     */
    SSLContext context() {
        char[] password = new char[0]; // the key store never leaves memory
        try {
            KeyStore store = KeyStore.getInstance("PKCS12");
            store.load(null, null);
            List<X509Certificate> own = certificates("tls.crt", certificate);
            store.setKeyEntry("agent", privateKey(), password, own.toArray(Certificate[]::new));
            KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keys.init(store, password);
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(keys.getKeyManagers(), new TrustManager[] {new Listed(certificates("ca.crt", clients))}, null);
            return context;
        } catch (GeneralSecurityException | IOException e) {
            throw new FormatException("expected a certificate and its key: " + e.getMessage(), e);
        }
    }

    private static List<X509Certificate> certificates(String file, String pem) {
        try {
            List<X509Certificate> list = CertificateFactory.getInstance("X.509")
                    .generateCertificates(new ByteArrayInputStream(pem.getBytes(StandardCharsets.ISO_8859_1)))
                    .stream()
                    .map(X509Certificate.class::cast)
                    .toList();
            if (list.isEmpty()) {
                throw new FormatException("expected certificates in " + file + ", found none");
            }
            return list;
        } catch (CertificateException e) {
            throw new FormatException("expected certificates in " + file + ": " + e.getMessage(), e);
        }
    }

    private PrivateKey privateKey() throws GeneralSecurityException {
        Matcher block = PRIVATE_KEY.matcher(key);
        if (!block.find()) {
            throw new FormatException("expected a PEM block PRIVATE KEY in tls.key, found none");
        }
        byte[] encoded = Base64.getMimeDecoder().decode(block.group(1));
        return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(encoded));
    }

    /** Without the key. */
    @Override
    public String toString() {
        return "TlsFiles[]";
    }

    /** Accepts the listed certificates and no other, while they are valid. Hosts have no names: pods have addresses. */
    private static final class Listed extends X509ExtendedTrustManager {
        private final List<X509Certificate> clients;

        Listed(List<X509Certificate> clients) {
            this.clients = clients;
        }

        private void check(X509Certificate[] chain) throws CertificateException {
            if (chain.length == 0 || !clients.contains(chain[0])) {
                throw new CertificateException("expected the scheduler's certificate, found another");
            }
            chain[0].checkValidity();
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String authType, Socket socket)
                throws CertificateException {
            check(chain);
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String authType, SSLEngine engine)
                throws CertificateException {
            check(chain);
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String authType) throws CertificateException {
            check(chain);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String authType, Socket socket)
                throws CertificateException {
            throw new CertificateException("this is a server");
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String authType, SSLEngine engine)
                throws CertificateException {
            throw new CertificateException("this is a server");
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String authType) throws CertificateException {
            throw new CertificateException("this is a server");
        }

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }
}
