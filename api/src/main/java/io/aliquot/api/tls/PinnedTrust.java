package io.aliquot.api.tls;

import java.net.Socket;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * Knows the peers' certificates as they are, without authorities and names, since a pod's address says nothing: the JDK
 * checks no host names where the trust manager is an extended one.
 */
public class PinnedTrust extends X509ExtendedTrustManager {
    /** Decides about a peer's certificate, its validity included; asked at each handshake, but not for a resumed session. */
    public interface Pin {
        void check(X509Certificate certificate) throws CertificateException;
    }

    private final Pin pin;

    public PinnedTrust(Pin pin) {
        this.pin = pin;
    }

    private void check(X509Certificate[] chain) throws CertificateException {
        if (chain.length == 0) {
            throw new CertificateException("the peer presents no certificate");
        }
        pin.check(chain[0]);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type) throws CertificateException {
        check(chain);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) throws CertificateException {
        check(chain);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) throws CertificateException {
        check(chain);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type) throws CertificateException {
        check(chain);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) throws CertificateException {
        check(chain);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine) throws CertificateException {
        check(chain);
    }

    /** None: a client then chooses its certificate itself (RFC 8446, 4.2.4). */
    @Override
    public X509Certificate[] getAcceptedIssuers() {
        return new X509Certificate[0];
    }
}
