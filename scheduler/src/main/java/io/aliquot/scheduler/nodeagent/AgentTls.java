package io.aliquot.scheduler.nodeagent;

import io.aliquot.scheduler.nodeagent.AgentTls.Identity.Known;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.util.Set;

/**
 * What the scheduler presents to node agents, and which certificates it accepts of them. At first it has no certificate
 * and accepts none. Thread-safe.
 */
public final class AgentTls {
    private volatile Identity identity = new Identity.None();

    /** What one connection uses. */
    public sealed interface Identity {
        /** Nothing can be fetched. */
        record None() implements Identity {}

        /** Without the key in its text. */
        record Known(PrivateKey key, X509Certificate certificate, Set<X509Certificate> agents) implements Identity {
            public Known {
                agents = Set.copyOf(agents);
            }

            @Override
            public String toString() {
                return "Known[" + certificate.getSerialNumber().toString(16) + "]";
            }
        }
    }

    /**
     * New connections use these from now on.
     *
     * @param key of the certificate
     * @param certificate the one to present
     * @param agents the certificates to accept, each as it is
     */
    public void use(PrivateKey key, X509Certificate certificate, Set<X509Certificate> agents) {
        var now = new Known(key, certificate, agents);
        if (!now.equals(identity)) {
            identity = now;
        }
    }

    public Identity identity() {
        return identity;
    }
}
