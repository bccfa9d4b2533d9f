package io.aliquot.scheduler.nodeagent;

import java.net.Socket;
import java.security.GeneralSecurityException;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.time.Clock;
import java.util.Date;
import java.util.Set;
import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedKeyManager;
import javax.net.ssl.X509ExtendedTrustManager;
import org.jspecify.annotations.Nullable;

/**
 * TLS in which each side accepts the other's certificates as they are, without authorities and names: a pod's address
 * says nothing, and a program with one of these keys is an agent.
 */
final class PinnedTls {
    private static final int SESSION_SECONDS = 3600;

    private PinnedTls() {}

    static SSLContext context(AgentTls.Identity.Known identity, Clock clock) {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(
                    new KeyManager[] {new OneKey(identity.key(), identity.certificate())},
                    new TrustManager[] {new Pinned(identity.agents(), clock)},
                    null);
            // A resumed session saves both signatures of a handshake. It is not checked again.
            context.getClientSessionContext().setSessionTimeout(SESSION_SECONDS);
            return context;
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("cannot use the certificate for node agents", e);
        }
    }

    static SSLParameters parameters() {
        var parameters = new SSLParameters();
        parameters.setProtocols(new String[] {"TLSv1.3", "TLSv1.2"});
        return parameters;
    }

    /** The JDK checks no host names where the trust manager is an extended one. */
    private static final class Pinned extends X509ExtendedTrustManager {
        private final Set<X509Certificate> accepted;
        private final Clock clock;

        Pinned(Set<X509Certificate> accepted, Clock clock) {
            this.accepted = accepted;
            this.clock = clock;
        }

        private void check(X509Certificate[] chain) throws CertificateException {
            X509Certificate certificate = chain[0];
            if (!accepted.contains(certificate)) {
                throw new CertificateException("the agent presents a certificate that is not the node agents': "
                        + certificate.getSerialNumber().toString(16));
            }
            certificate.checkValidity(Date.from(clock.instant()));
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
        public void checkServerTrusted(X509Certificate[] chain, String type) throws CertificateException {
            check(chain);
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket)
                throws CertificateException {
            throw notAServer();
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine)
                throws CertificateException {
            throw notAServer();
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type) throws CertificateException {
            throw notAServer();
        }

        private static CertificateException notAServer() {
            return new CertificateException("this is the context of a client");
        }

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }

    /** Presents one certificate whatever the server asks for; it knows the certificate and asks for no authority. */
    private static final class OneKey extends X509ExtendedKeyManager {
        private static final String ALIAS = "scheduler";

        private final PrivateKey key;
        private final X509Certificate certificate;

        OneKey(PrivateKey key, X509Certificate certificate) {
            this.key = key;
            this.certificate = certificate;
        }

        @Override
        public String chooseEngineClientAlias(
                String[] types, Principal @Nullable [] issuers, @Nullable SSLEngine engine) {
            return ALIAS;
        }

        @Override
        public String chooseClientAlias(String[] types, Principal @Nullable [] issuers, @Nullable Socket socket) {
            return ALIAS;
        }

        @Override
        public String[] getClientAliases(String type, Principal @Nullable [] issuers) {
            return new String[] {ALIAS};
        }

        @Override
        public X509Certificate[] getCertificateChain(String alias) {
            return new X509Certificate[] {certificate};
        }

        @Override
        public PrivateKey getPrivateKey(String alias) {
            return key;
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
