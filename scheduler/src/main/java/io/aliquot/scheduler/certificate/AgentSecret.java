package io.aliquot.scheduler.certificate;

import io.aliquot.api.names.FormatException;
import io.aliquot.scheduler.nodeagent.AgentTls;
import io.fabric8.kubernetes.api.model.Secret;
import io.fabric8.kubernetes.api.model.SecretBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.dsl.Resource;
import java.security.cert.X509Certificate;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/*
 * Trust comes before use, in both directions, and the two sides see the Secret at different times: a replica within 5 s,
 * an agent when its kubelet has updated the volume, which takes up to two minutes.
 *
 * The agents' certificate. Its successor is announced in next.crt and next.key, which agents do not read. A minute later,
 * when every replica accepts it, it becomes tls.crt and tls.key. Its predecessor stays in agents.crt, the certificates
 * that replicas accept, for an hour.
 *
 * The scheduler's certificate. When it has been renewed, ca.crt lists it and its predecessor, for an hour. A replica goes
 * on to present the one that it presented until ca.crt has listed the new one for five minutes. A replica that starts
 * within these minutes has only the new key: agents refuse it until their volumes are updated.
 */
/**
 * Keeps the Secret with the node agents' certificate, and decides which certificates this replica presents to agents and
 * accepts of them. For one thread.
 */
final class AgentSecret {
    /** When every replica has read an announced certificate. */
    static final Duration ANNOUNCED_FOR = Duration.ofMinutes(1);
    /** When every kubelet has updated the agents' volumes. */
    static final Duration FOLLOWED_AFTER = Duration.ofMinutes(5);

    private static final Logger LOG = LoggerFactory.getLogger(AgentSecret.class);

    /** The certificates of agents that replicas accept. */
    private static final String AGENTS = "agents.crt";

    private static final String NEXT_CERTIFICATE = "next.crt";
    private static final String NEXT_KEY = "next.key";

    private final KubernetesClient kubernetes;
    private final String namespace;
    private final String name;
    private final Clock clock;
    private final AgentTls tls;

    private @Nullable Secret read;
    private @Nullable ServingCertificate presented;
    /** The agents' certificates that this replica accepts. */
    private Set<X509Certificate> accepted = Set.of();
    /** Since when agents have been told to accept which certificate of the scheduler. */
    private @Nullable Listed listed;

    private record Listed(X509Certificate certificate, Instant since) {}

    /**
     * The Secret's content.
     *
     * @param current what agents serve, and the certificates that replicas accept
     * @param next what agents will serve; null if no renewal is under way
     * @param clients the certificates that agents accept, as {@link ServingCertificate#caBundle}
     */
    private record Content(
            ServingCertificate current, @Nullable ServingCertificate next, String clients) {
        static Content parse(Map<String, String> data, Instant now) {
            var current = ServingCertificate.parse(data, AGENTS, ServingCertificate.AGENT, now);
            return new Content(current, next(data, now), data.getOrDefault(ServingCertificate.TRUSTED, ""));
        }

        /** An announcement that is not readable is made again. */
        private static @Nullable ServingCertificate next(Map<String, String> data, Instant now) {
            if (!data.containsKey(NEXT_CERTIFICATE)) {
                return null;
            }
            try {
                var fields = new LinkedHashMap<String, String>();
                fields.put(ServingCertificate.CERTIFICATE, data.getOrDefault(NEXT_CERTIFICATE, ""));
                fields.put(ServingCertificate.KEY, data.getOrDefault(NEXT_KEY, ""));
                fields.put(AGENTS, data.getOrDefault(NEXT_CERTIFICATE, ""));
                return ServingCertificate.parse(fields, AGENTS, ServingCertificate.AGENT, now);
            } catch (FormatException e) {
                LOG.warn("ignored the announced certificate of the node agents: {}", e.getMessage());
                return null;
            }
        }

        Map<String, String> print() {
            Map<String, String> data = current.print(AGENTS);
            data.put(ServingCertificate.TRUSTED, clients);
            if (next != null) {
                Map<String, String> fields = next.print(AGENTS);
                data.put(NEXT_CERTIFICATE, fields.getOrDefault(ServingCertificate.CERTIFICATE, ""));
                data.put(NEXT_KEY, fields.getOrDefault(ServingCertificate.KEY, ""));
            }
            return data;
        }

        Set<X509Certificate> accepted() {
            var all = new HashSet<>(current.trusted());
            if (next != null) {
                all.add(next.certificate());
            }
            return all;
        }
    }

    AgentSecret(KubernetesClient kubernetes, String namespace, String name, Clock clock, AgentTls tls) {
        this.kubernetes = kubernetes;
        this.namespace = namespace;
        this.name = name;
        this.clock = clock;
        this.tls = tls;
    }

    /** Reads the Secret, for {@link #reconcile}. To be called before the scheduler's certificate is read. */
    void read() {
        read = resource().get();
    }

    /**
     * Repairs the Secret in the version that was read, and uses it.
     *
     * @param stored the scheduler's certificate
     * @param presentFirst what to present if this replica has presented none; agents accept it
     */
    void reconcile(ServingCertificate stored, ServingCertificate presentFirst) {
        Content content = ensure(stored);
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
        accepted = content.accepted();
        tls.use(presents.key(), presents.certificate(), accepted);
    }

    /** The certificate that this replica presents to agents; empty if none. */
    Stream<X509Certificate> presented() {
        return Stream.ofNullable(presented).map(ServingCertificate::certificate);
    }

    private Content ensure(ServingCertificate stored) {
        Secret secret = read;
        if (secret == null) {
            var created = new Content(replacement(), null, stored.caBundle());
            kubernetes
                    .resource(new SecretBuilder()
                            .withNewMetadata()
                            .withNamespace(namespace)
                            .withName(name)
                            .addToLabels("app.kubernetes.io/part-of", "aliquot")
                            .endMetadata()
                            .withType("kubernetes.io/tls")
                            .withData(created.print())
                            .build())
                    .create();
            LOG.info("Created Secret {} with {}", name, created.current());
            return created;
        }
        Map<String, String> data = Objects.requireNonNullElse(secret.getData(), Map.of());
        Content wanted;
        try {
            wanted = follow(Content.parse(data, clock.instant()), stored);
        } catch (FormatException e) {
            wanted = new Content(replacement(), null, stored.caBundle());
            LOG.warn("Replaced the content of Secret {} with {}: {}", name, wanted.current(), e.getMessage());
        }
        if (!wanted.print().equals(data)) {
            kubernetes
                    .resource(secret.toBuilder().withData(wanted.print()).build())
                    .update();
        }
        return wanted;
    }

    /** A new certificate at once; what agents serve stays accepted. */
    private ServingCertificate replacement() {
        return ServingCertificate.createForAgents(clock.instant(), List.copyOf(accepted));
    }

    private Content follow(Content found, ServingCertificate stored) {
        Instant now = clock.instant();
        ServingCertificate current = found.current();
        ServingCertificate next = found.next();
        if (next == null) {
            if (current.dueForRenewal(List.of(ServingCertificate.AGENT), now)) {
                next = ServingCertificate.createForAgents(now, List.of());
                LOG.info("Announced {} to succeed the node agents' {}", next, current);
            }
        } else if (!now.isBefore(next.created().plus(ANNOUNCED_FOR))) {
            LOG.info("Renewed the node agents' {} with {}", current, next);
            current = next.withPredecessor(current.certificate());
            next = null;
        }
        return new Content(current.withoutOldPredecessor(now), next, stored.caBundle());
    }

    private Resource<Secret> resource() {
        return kubernetes.secrets().inNamespace(namespace).withName(name);
    }
}
