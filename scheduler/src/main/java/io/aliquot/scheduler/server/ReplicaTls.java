package io.aliquot.scheduler.server;

import java.net.Socket;
import java.security.GeneralSecurityException;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Set;
import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedKeyManager;
import javax.net.ssl.X509ExtendedTrustManager;
import org.jspecify.annotations.Nullable;

/**
 * Mutual TLS between replicas: each presents the certificate that it serves and accepts only a certificate that equals
 * one of the replicas'. Names and issuers do not matter. A renewed certificate is used from the next connection on.
 */
final class ReplicaTls {
    private static final String ALIAS = "tls";

    private volatile @Nullable PrivateKey key;
    private volatile @Nullable X509Certificate certificate;
    private volatile Set<X509Certificate> trusted = Set.of();

    void present(PrivateKey newKey, X509Certificate newCertificate) {
        key = newKey;
        certificate = newCertificate;
    }

    void trust(Set<X509Certificate> certificates) {
        trusted = Set.copyOf(certificates);
    }

    boolean isReplica(X509Certificate peer) {
        return peer.equals(certificate) || trusted.contains(peer);
    }

    SSLContext client() {
        try {
            var context = SSLContext.getInstance("TLS");
            context.init(new KeyManager[] {new Keys()}, new TrustManager[] {new Pins()}, null);
            return context;
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("cannot use TLS", e);
        }
    }

    private final class Keys extends X509ExtendedKeyManager {
        @Override
        public @Nullable String chooseClientAlias(
                String[] types, Principal @Nullable [] issuers, @Nullable Socket socket) {
            return key == null ? null : ALIAS;
        }

        @Override
        public @Nullable String chooseEngineClientAlias(
                String[] types, Principal @Nullable [] issuers, @Nullable SSLEngine engine) {
            return key == null ? null : ALIAS;
        }

        @Override
        public X509Certificate @Nullable [] getCertificateChain(String alias) {
            X509Certificate presented = certificate;
            return presented == null ? null : new X509Certificate[] {presented};
        }

        @Override
        public @Nullable PrivateKey getPrivateKey(String alias) {
            return key;
        }

        @Override
        public String[] getClientAliases(String type, Principal @Nullable [] issuers) {
            return new String[] {ALIAS};
        }

        @Override
        public String @Nullable [] getServerAliases(String type, Principal @Nullable [] issuers) {
            return null;
        }

        @Override
        public @Nullable String chooseServerAlias(
                String type, Principal @Nullable [] issuers, @Nullable Socket socket) {
            return null;
        }
    }

    private final class Pins extends X509ExtendedTrustManager {
        private void check(X509Certificate[] chain) throws CertificateException {
            if (chain.length == 0 || !isReplica(chain[0])) {
                throw new CertificateException("expected the certificate of another replica, found another one");
            }
            chain[0].checkValidity();
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type) throws CertificateException {
            check(chain);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket)
                throws CertificateException {
            check(chain);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine)
                throws CertificateException {
            check(chain);
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type) throws CertificateException {
            throw new CertificateException("is for clients");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket)
                throws CertificateException {
            throw new CertificateException("is for clients");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine)
                throws CertificateException {
            throw new CertificateException("is for clients");
        }

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }
}
