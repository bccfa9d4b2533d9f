package io.aliquot.scheduler.certificate;

import io.aliquot.scheduler.nodeagent.AgentTls;
import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.client.KubernetesClient;
import java.security.cert.X509Certificate;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/*
 * Trust comes before use. When the scheduler's certificate has been renewed, the ConfigMap lists it and its predecessor
 * for an hour. An agent sees that when its kubelet has updated the volume, which takes up to two minutes. A replica goes
 * on to present the certificate that it presented until the new one has been listed for five minutes. A replica that
 * starts within these minutes has only the new key: agents refuse it until their volumes are updated.
 */
/**
 * Tells node agents, by the chart's ConfigMap, which certificates of clients to accept, and decides which one this replica
 * presents. For one thread.
 */
final class AgentClients {
    static final String NAME = "aliquot-agent-clients";
    static final String FIELD = "clients.crt";

    /** When every kubelet has updated the agents' volumes. */
    static final Duration FOLLOWED_AFTER = Duration.ofMinutes(5);

    private static final Logger LOG = LoggerFactory.getLogger(AgentClients.class);

    private final KubernetesClient kubernetes;
    private final String namespace;
    private final Clock clock;
    private final AgentTls tls;

    private @Nullable ConfigMap read;
    private @Nullable ServingCertificate presented;
    /** Since when agents have been told to accept which certificate. */
    private @Nullable Listed listed;

    private record Listed(X509Certificate certificate, Instant since) {}

    AgentClients(KubernetesClient kubernetes, String namespace, Clock clock, AgentTls tls) {
        this.kubernetes = kubernetes;
        this.namespace = namespace;
        this.clock = clock;
        this.tls = tls;
    }

    /** Reads the ConfigMap, for {@link #reconcile}. To be called before the scheduler's certificate is read. */
    void read() {
        read = kubernetes.configMaps().inNamespace(namespace).withName(NAME).get();
        if (read == null) {
            throw new IllegalStateException("expected ConfigMap " + NAME + ", found none; install the chart's");
        }
    }

    /**
     * Repairs the ConfigMap in the version that was read, and presents a certificate that agents accept.
     *
     * @param stored the scheduler's certificate
     * @param presentFirst what to present if this replica has presented none; agents accept it
     */
    void reconcile(ServingCertificate stored, ServingCertificate presentFirst) {
        list(stored);
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

    private void list(ServingCertificate stored) {
        ConfigMap found = Objects.requireNonNull(read, "read before");
        Map<String, String> wanted = Map.of(FIELD, stored.trustedPem());
        if (!wanted.equals(found.getData())) {
            kubernetes.resource(found.toBuilder().withData(wanted).build()).update();
            LOG.info("Updated ConfigMap {}: node agents accept {}", NAME, stored);
        }
    }
}
