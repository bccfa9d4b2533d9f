package io.aliquot.scheduler.server.ports;

import io.aliquot.api.tls.PinnedTrust;

/**
 * Accepts every certificate of a client, so that TLS proves no more than that the client has its key. What the
 * certificate identifies is decided per request: the API server may present one to the webhooks that nothing here
 * trusts, and a rotated CA needs no new connections.
 *
 * <p>Public because Tomcat creates it by name.
 */
public final class AnyPeer extends PinnedTrust {
    public AnyPeer() {
        super(certificate -> {});
    }
}
