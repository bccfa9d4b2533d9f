package io.aliquot.scheduler.server;

import java.security.PrivateKey;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Optional;
import java.util.Set;
import javax.net.ssl.SSLContext;

/**
 * Mutual TLS between replicas: each presents the certificate that it serves and accepts only a certificate that equals
 * one of the replicas'. A renewed certificate is used from the next connection on.
 */
final class ReplicaTls {
    private volatile Optional<PinnedTls.Identity> own = Optional.empty();
    private volatile Set<X509Certificate> trusted = Set.of();

    void present(PrivateKey key, X509Certificate certificate) {
        own = Optional.of(new PinnedTls.Identity(key, certificate));
    }

    void trust(Set<X509Certificate> certificates) {
        trusted = Set.copyOf(certificates);
    }

    boolean isReplica(X509Certificate peer) {
        return own.filter(one -> one.certificate().equals(peer)).isPresent() || trusted.contains(peer);
    }

    SSLContext client() {
        return PinnedTls.client(() -> own, this::check);
    }

    private void check(X509Certificate certificate) throws CertificateException {
        if (!isReplica(certificate)) {
            throw new CertificateException("expected the certificate of another replica, found another one");
        }
        certificate.checkValidity();
    }
}
