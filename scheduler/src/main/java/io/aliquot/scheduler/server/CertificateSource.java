package io.aliquot.scheduler.server;

import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.util.List;
import java.util.Optional;

/**
 * The certificate of the TLS ports. Each handshake asks for it, so that the next connection uses a renewed certificate;
 * without one, handshakes fail. Implementations answer from memory and are thread-safe.
 */
public interface CertificateSource {
    Optional<Identity> current();

    /**
     * A private key and its certificate.
     *
     * @param chain the server's own certificate first
     */
    record Identity(PrivateKey key, List<X509Certificate> chain) {
        public Identity {
            chain = List.copyOf(chain);
            if (chain.isEmpty()) {
                throw new IllegalArgumentException("expected the key's certificate, found none");
            }
        }

        /** Never the key. */
        @Override
        public String toString() {
            return "Identity[" + chain.get(0).getSubjectX500Principal() + "]";
        }
    }
}
