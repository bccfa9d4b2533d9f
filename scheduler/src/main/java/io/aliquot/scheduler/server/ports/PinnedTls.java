package io.aliquot.scheduler.server.ports;

import io.aliquot.api.tls.PinnedTrust;
import io.aliquot.api.tls.TlsContext;
import java.net.Socket;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.util.Optional;
import java.util.function.Supplier;
import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.X509ExtendedKeyManager;
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

    /**
     * The context of a client.
     *
     * @param identity asked at each handshake; empty for a client that presents nothing yet
     */
    public static SSLContext client(Supplier<Optional<Identity>> identity, PinnedTrust.Pin pin) {
        return TlsContext.of(new KeyManager[] {new OneKey(identity)}, new PinnedTrust(pin));
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
