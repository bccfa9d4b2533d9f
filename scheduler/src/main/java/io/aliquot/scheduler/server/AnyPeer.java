package io.aliquot.scheduler.server;

import java.net.Socket;
import java.security.cert.X509Certificate;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * Accepts every certificate of a client, so that TLS proves no more than that the client has its key. What the
 * certificate identifies is decided per request: the API server may present one to the webhooks that nothing here
 * trusts, and a rotated CA needs no new connections.
 *
 * <p>Public because Tomcat creates it by name.
 */
public final class AnyPeer extends X509ExtendedTrustManager {
    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type) {}

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) {}

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) {}

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type) {
        throw new UnsupportedOperationException("is for servers");
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) {
        throw new UnsupportedOperationException("is for servers");
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine) {
        throw new UnsupportedOperationException("is for servers");
    }

    /** None: a client then chooses its certificate itself (RFC 8446, 4.2.4). */
    @Override
    public X509Certificate[] getAcceptedIssuers() {
        return new X509Certificate[0];
    }
}
