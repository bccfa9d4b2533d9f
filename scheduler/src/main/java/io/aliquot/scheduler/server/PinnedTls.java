package io.aliquot.scheduler.server;

import java.net.Socket;
import java.security.GeneralSecurityException;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Optional;
import java.util.function.Supplier;
import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedKeyManager;
import javax.net.ssl.X509ExtendedTrustManager;
import org.jspecify.annotations.Nullable;

/**
 * TLS of a client that knows its servers' certificates: it accepts them as they are, without authorities and names, since
 * a pod's address says nothing.
 */
public final class PinnedTls {
    private PinnedTls() {}

    /** What the client presents. Without the key in its text. */
    public record Identity(PrivateKey key, X509Certificate certificate) {
        @Override
        public String toString() {
            return "Identity[" + certificate.getSerialNumber().toString(16) + "]";
        }
    }

    /** Decides about a server's certificate, its validity included. */
    public interface Pin {
        void check(X509Certificate certificate) throws CertificateException;
    }

    /**
     * The context of a client.
     *
     * @param identity asked at each handshake; empty for a client that presents nothing yet
     * @param pin asked at each handshake, but not for a resumed session
     */
    public static SSLContext client(Supplier<Optional<Identity>> identity, Pin pin) {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(new KeyManager[] {new OneKey(identity)}, new TrustManager[] {new Pinned(pin)}, null);
            return context;
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("cannot use TLS", e);
        }
    }

    /** The JDK checks no host names where the trust manager is an extended one. */
    private static final class Pinned extends X509ExtendedTrustManager {
        private final Pin pin;

        Pinned(Pin pin) {
            this.pin = pin;
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type) throws CertificateException {
            if (chain.length == 0) {
                throw new CertificateException("the server presents no certificate");
            }
            pin.check(chain[0]);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket)
                throws CertificateException {
            checkServerTrusted(chain, type);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine)
                throws CertificateException {
            checkServerTrusted(chain, type);
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type) throws CertificateException {
            throw new CertificateException("this is the context of a client");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket)
                throws CertificateException {
            checkClientTrusted(chain, type);
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine)
                throws CertificateException {
            checkClientTrusted(chain, type);
        }

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }

    /** Presents one certificate whatever the server asks for; it knows the certificate and asks for no authority. */
    private static final class OneKey extends X509ExtendedKeyManager {
        private static final String ALIAS = "scheduler";

        private final Supplier<Optional<Identity>> identity;

        OneKey(Supplier<Optional<Identity>> identity) {
            this.identity = identity;
        }

        @Override
        public @Nullable String chooseEngineClientAlias(
                String[] types, Principal @Nullable [] issuers, @Nullable SSLEngine engine) {
            return identity.get().isPresent() ? ALIAS : null;
        }

        @Override
        public @Nullable String chooseClientAlias(
                String[] types, Principal @Nullable [] issuers, @Nullable Socket socket) {
            return identity.get().isPresent() ? ALIAS : null;
        }

        @Override
        public String[] getClientAliases(String type, Principal @Nullable [] issuers) {
            return new String[] {ALIAS};
        }

        @Override
        public X509Certificate @Nullable [] getCertificateChain(String alias) {
            return identity.get()
                    .map(one -> new X509Certificate[] {one.certificate()})
                    .orElse(null);
        }

        @Override
        public @Nullable PrivateKey getPrivateKey(String alias) {
            return identity.get().map(Identity::key).orElse(null);
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
}
