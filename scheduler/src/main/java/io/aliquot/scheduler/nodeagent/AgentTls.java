package io.aliquot.scheduler.nodeagent;

import io.aliquot.scheduler.nodeagent.AgentTls.Identity.Known;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;

/** What the scheduler presents to node agents; nothing at first. Thread-safe. */
public final class AgentTls {
    private volatile Identity identity = new Identity.None();

    /** What one connection uses. */
    public sealed interface Identity {
        /** Nothing can be fetched. */
        record None() implements Identity {}

        /** Without the key in its text. */
        record Known(PrivateKey key, X509Certificate certificate) implements Identity {
            @Override
            public String toString() {
                return "Known[" + certificate.getSerialNumber().toString(16) + "]";
            }
        }
    }

    /**
     * New connections present this from now on.
     *
     * @param key of the certificate
     */
    public void use(PrivateKey key, X509Certificate certificate) {
        var now = new Known(key, certificate);
        if (!now.equals(identity)) {
            identity = now;
        }
    }

    public Identity identity() {
        return identity;
    }
}
