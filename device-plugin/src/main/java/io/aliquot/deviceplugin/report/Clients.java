package io.aliquot.deviceplugin.report;

import io.aliquot.api.nodes.CertificateDigest;
import io.aliquot.api.tls.PinnedTrust;
import io.aliquot.api.tls.TlsContext;
import java.security.GeneralSecurityException;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Set;
import javax.net.ssl.SSLContext;

/** The clients that the agent answers, by the digests of their certificates. */
record Clients(Set<String> digests) {
    /** What a server for these clients needs. Hosts have no names: pods have addresses. */
    SSLContext context(AgentCertificate own) {
        try {
            return TlsContext.of(TlsContext.presenting(own.key(), own.certificate()), new PinnedTrust(this::check));
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("cannot use TLS", e);
        }
    }

    private void check(X509Certificate certificate) throws CertificateException {
        if (!digests.contains(CertificateDigest.of(certificate))) {
            throw new CertificateException("expected the scheduler's certificate, found another");
        }
        certificate.checkValidity();
    }
}
