package io.aliquot.scheduler.nodeagent;

import io.aliquot.scheduler.server.ports.PinnedTls;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.util.Optional;

/** What the scheduler presents to node agents; nothing at first. Thread-safe. */
public final class AgentTls {
    private volatile Optional<PinnedTls.Identity> identity = Optional.empty();

    /**
     * New connections present this from now on.
     *
     * @param key of the certificate
     */
    public void use(PrivateKey key, X509Certificate certificate) {
        identity = Optional.of(new PinnedTls.Identity(key, certificate));
    }

    public Optional<PinnedTls.Identity> identity() {
        return identity;
    }
}
