package io.aliquot.deviceplugin.report;

import io.aliquot.api.names.FormatException;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.List;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedTrustManager;

/** The certificates of the clients that the agent answers, each as it is: the file {@value #FILE}, in PEM. */
record Clients(String pem) {
    static final String FILE = "clients.crt";

    static Clients read(Path folder) throws IOException {
        return new Clients(Files.readString(folder.resolve(FILE), StandardCharsets.ISO_8859_1));
    }

    /**
     * What a server for these clients needs.
     *
     * @throws FormatException if the file has other content
     */
    SSLContext context(AgentCertificate own) {
        List<X509Certificate> clients = certificates();
        char[] password = new char[0]; // the key store never leaves memory
        try {
            KeyStore store = KeyStore.getInstance("PKCS12");
            store.load(null, null);
            store.setKeyEntry("agent", own.key(), password, new Certificate[] {own.certificate()});
            KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keys.init(store, password);
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(keys.getKeyManagers(), new TrustManager[] {new Listed(clients)}, null);
            return context;
        } catch (GeneralSecurityException | IOException e) {
            throw new IllegalStateException("cannot use TLS", e);
        }
    }

    private List<X509Certificate> certificates() {
        try {
            List<X509Certificate> list = CertificateFactory.getInstance("X.509")
                    .generateCertificates(new ByteArrayInputStream(pem.getBytes(StandardCharsets.ISO_8859_1)))
                    .stream()
                    .map(X509Certificate.class::cast)
                    .toList();
            if (list.isEmpty()) {
                throw new FormatException("expected certificates in " + FILE + ", found none");
            }
            return list;
        } catch (CertificateException e) {
            throw new FormatException("expected certificates in " + FILE + ": " + e.getMessage(), e);
        }
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
