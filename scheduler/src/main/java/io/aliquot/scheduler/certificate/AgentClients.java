package io.aliquot.scheduler.certificate;

import io.aliquot.scheduler.nodeagent.AgentTls;
import java.security.cert.X509Certificate;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/*
 * Trust comes before use. When the scheduler's certificate has been renewed, the agents are told it and its predecessor for
 * an hour. An agent learns of it within a second of the write to its Node, which takes as long as there are nodes. A replica
 * goes on to present the certificate that it presented until agents have been told the new one for five minutes. A replica
 * that starts within these minutes has only the new key: agents refuse it until they have been told.
 */
/** Decides which certificate this replica presents to node agents. For one thread. */
final class AgentClients {
    /** When the agents of all nodes have been told. */
    static final Duration FOLLOWED_AFTER = Duration.ofMinutes(5);

    private final Clock clock;
    private final Consumer<List<X509Certificate>> accepted;
    private final AgentTls tls;

    private @Nullable ServingCertificate presented;
    /** Since when agents have been told to accept which certificate. */
    private @Nullable Listed listed;

    private record Listed(X509Certificate certificate, Instant since) {}

    AgentClients(Clock clock, Consumer<List<X509Certificate>> accepted, AgentTls tls) {
        this.clock = clock;
        this.accepted = accepted;
        this.tls = tls;
    }

    /**
     * Has agents told which certificates to accept, and presents one of them.
     *
     * @param stored the scheduler's certificate
     * @param presentFirst what to present if this replica has presented none; agents accept it
     */
    void reconcile(ServingCertificate stored, ServingCertificate presentFirst) {
        accepted.accept(stored.trusted());
        Listed before = listed;
        if (before == null || !before.certificate().equals(stored.certificate())) {
            before = new Listed(stored.certificate(), clock.instant());
            listed = before;
        }
        ServingCertificate presents = presented == null ? presentFirst : presented;
        if (!clock.instant().isBefore(before.since().plus(FOLLOWED_AFTER))
                || !clock.instant().isBefore(presents.expires())) {
            presents = stored;
        }
        presented = presents;
        tls.use(presents.key(), presents.certificate());
    }

    /** The certificate that this replica presents to agents; empty if none. */
    Stream<X509Certificate> presented() {
        return Stream.ofNullable(presented).map(ServingCertificate::certificate);
    }
}
