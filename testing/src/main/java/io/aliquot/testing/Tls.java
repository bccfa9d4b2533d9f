package io.aliquot.testing;

import io.aliquot.api.tls.PinnedTrust;
import io.aliquot.api.tls.TlsContext;
import java.security.GeneralSecurityException;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.X509Certificate;
import java.util.Collection;
import javax.net.ssl.SSLContext;

/** TLS contexts of tests, with and without a certificate of one's own. */
public final class Tls {
    private static final PinnedTrust ANY = new PinnedTrust(certificate -> {});

    private Tls() {}

    /** Accepts every server, and checks no host name: for tests in which the certificate is not what is tested. */
    public static SSLContext anyServer() {
        return TlsContext.of(TlsContext.NO_KEY, ANY);
    }

    /** Accepts every server, as {@link #anyServer()}. */
    public static SSLContext anyServer(PrivateKey key, X509Certificate certificate) throws GeneralSecurityException {
        return TlsContext.of(TlsContext.presenting(key, certificate), ANY);
    }

    /** Accepts peers with one of these certificates, or with one that one of these has signed. */
    public static SSLContext trusting(Collection<? extends Certificate> trusted) throws GeneralSecurityException {
        return TlsContext.of(TlsContext.NO_KEY, TlsContext.trusting(trusted));
    }

    /** Accepts peers as {@link #trusting(Collection)} does. */
    public static SSLContext trusting(
            Collection<? extends Certificate> trusted, PrivateKey key, X509Certificate certificate)
            throws GeneralSecurityException {
        return TlsContext.of(TlsContext.presenting(key, certificate), TlsContext.trusting(trusted));
    }
}
