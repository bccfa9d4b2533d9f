package io.aliquot.scheduler.certificate;

import io.aliquot.api.names.FormatException;
import io.aliquot.scheduler.nodeagent.AgentTls;
import io.aliquot.scheduler.server.Readiness;
import io.aliquot.scheduler.server.TlsCertificate;
import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.api.model.Secret;
import io.fabric8.kubernetes.api.model.SecretBuilder;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhook;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfiguration;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.net.HttpURLConnection;
import java.security.cert.X509Certificate;
import java.time.Clock;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps a valid certificate in a Secret, and the webhooks' and the APIService's {@code caBundle} trusting it; and the
 * node agents accepting it of their client ({@link AgentClients}). Every 5 s each replica reads all of them and repairs
 * them; the first replica writes, the others adopt. A reconciliation depends only on what it reads and on the certificates
 * that this replica uses, so the process may be killed at any point.
 *
 * <p>A renewal fails no call: the Secret gets the new certificate, the {@code caBundle} then trusts both, and a replica
 * serves the new one only after a later reconciliation has found the {@code caBundle} in that state.
 *
 * <p>One thread reconciles; {@link #waitsFor} and {@link #served} are thread-safe.
 */
final class CertificateKeeper implements Readiness, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(CertificateKeeper.class);
    private static final long PERIOD_SECONDS = 5;
    private static final int MAX_ATTEMPTS = 5;
    /** HTTP status if the test of a JSON Patch fails (k8s.io/apiserver, handlers/patch.go). */
    private static final int UNPROCESSABLE_CONTENT = 422;

    private static final String REQUIRED = "gpu.aliquot.io";
    /** How the names of the chart's webhooks end; its values decide which of them there are. */
    private static final String OURS = ".aliquot.io";

    // What is kept, for the log.
    private static final String WEBHOOKS = "the webhooks' certificate";
    private static final String AGENTS = "the certificates that node agents accept";
    private static final String API_SERVICE = "the APIService's caBundle";

    private final KubernetesClient kubernetes;
    private final Settings settings;
    /** The DNS names of the Services; the API server calls the webhooks by the first. */
    private final List<String> hosts;

    private final Clock clock;
    private final TlsCertificate ports;
    private final ScheduledExecutorService timer;
    private volatile @Nullable ServingCertificate served;
    /** What this replica waits for before it is ready; empty once it is ready. */
    private volatile String waitingFor = WEBHOOKS;
    /** The certificate that the previous reconciliation left trusted; the API server has noticed it since. */
    private @Nullable ServingCertificate trustedBefore;

    private final AgentClients agents;
    private final ApiServiceTrust apiService;
    /** The error of each that cannot be kept now. */
    private final Map<String, String> lastErrors = new HashMap<>();

    CertificateKeeper(
            KubernetesClient kubernetes, Settings settings, Clock clock, TlsCertificate ports, AgentTls agentTls) {
        this.kubernetes = kubernetes;
        this.settings = settings;
        this.hosts = Stream.of(settings.webhookService(), settings.apiGroupService())
                .filter(service -> !service.isEmpty())
                .distinct()
                .map(service -> service + "." + settings.namespace() + ".svc")
                .toList();
        this.clock = clock;
        this.ports = ports;
        this.agents = new AgentClients(kubernetes, settings.namespace(), clock, agentTls);
        this.apiService = new ApiServiceTrust(kubernetes);
        this.timer = Executors.newSingleThreadScheduledExecutor(task -> {
            var thread = new Thread(task, "certificate");
            thread.setDaemon(true);
            return thread;
        });
    }

    void start() {
        var unused = timer.scheduleWithFixedDelay(this::reconcileAndLog, 0, PERIOD_SECONDS, TimeUnit.SECONDS);
    }

    @Override
    public void close() {
        timer.shutdownNow();
    }

    /** The certificate that this replica serves. */
    Optional<ServingCertificate> served() {
        return Optional.ofNullable(served);
    }

    private void serve(ServingCertificate certificate) {
        if (!certificate.equals(served)) {
            ports.serve(certificate.key(), certificate.certificate());
        }
        served = certificate;
    }

    @Override
    public Optional<String> waitsFor() {
        return Optional.of(waitingFor).filter(text -> !text.isEmpty());
    }

    /**
     * Reads everything once and repairs it. Logs errors of the agents' ConfigMap and the APIService: the webhooks do not
     * depend on them.
     *
     * @throws KubernetesClientException if the API server is unreachable or refuses
     */
    void reconcile() {
        for (int attempt = 1; ; attempt++) {
            try {
                tryReconcile();
                return;
            } catch (KubernetesClientException e) {
                if (!raced(e) || attempt == MAX_ATTEMPTS) {
                    throw e;
                }
            }
        }
    }

    /** Whether another replica changed the object after this one read it. */
    private static boolean raced(KubernetesClientException e) {
        return e.getCode() == HttpURLConnection.HTTP_CONFLICT || e.getCode() == UNPROCESSABLE_CONTENT;
    }

    /**
     * Reads the webhooks, the APIService and the agents' ConfigMap before the Secret, and writes them only in the
     * version that it read. A replica that is delayed in between therefore cannot overwrite them with an older certificate
     * than another replica has written meanwhile.
     */
    private void tryReconcile() {
        MutatingWebhookConfiguration configuration = kubernetes
                .admissionRegistration()
                .v1()
                .mutatingWebhookConfigurations()
                .withName(settings.webhookConfiguration())
                .get();
        boolean groupIsServed = !settings.apiGroupService().isEmpty() && succeeds(API_SERVICE, apiService::read);
        boolean agentsAreRead = succeeds(AGENTS, agents::read);
        ServingCertificate stored = ensureSecret();
        ports.trustReplicas(stored.trusted());
        boolean trusted = ensureTrusted(configuration, stored);
        if (groupIsServed) {
            var trustedForGroup = new AtomicBoolean(true);
            succeeds(API_SERVICE, () -> trustedForGroup.set(apiService.ensure(stored)));
            trusted &= trustedForGroup.get();
        }
        if (served == null || (trusted && stored.equals(trustedBefore))) {
            serve(stored);
        }
        trustedBefore = stored;
        waitingFor = "";
        ServingCertificate serves = served;
        if (agentsAreRead && serves != null) {
            succeeds(AGENTS, () -> agents.reconcile(stored, serves));
        }
    }

    private void reconcileAndLog() {
        try {
            reconcile();
            lastErrors.remove(WEBHOOKS);
        } catch (RuntimeException e) {
            logOnce(WEBHOOKS, e);
        }
    }

    /** Runs a step that the webhooks do not depend on. Returns whether it threw nothing; logs what it threw. */
    private boolean succeeds(String what, Runnable step) {
        try {
            step.run();
            lastErrors.remove(what);
            return true;
        } catch (RuntimeException e) {
            if (e instanceof KubernetesClientException failure && raced(failure)) {
                throw failure;
            }
            logOnce(what, e);
            return false;
        }
    }

    /** Logs an error once, not every 5 s. */
    private void logOnce(String what, RuntimeException e) {
        String error = e.getMessage() + (e.getCause() == null ? "" : " (" + e.getCause() + ")");
        if (!error.equals(lastErrors.put(what, error))) {
            LOG.warn("Cannot keep {}; retrying every {} s: {}", what, PERIOD_SECONDS, error);
        }
    }

    /** The Secret's certificate, after creation, replacement or renewal where needed. */
    private ServingCertificate ensureSecret() {
        Secret secret = kubernetes
                .secrets()
                .inNamespace(settings.namespace())
                .withName(settings.webhookSecret())
                .get();
        if (secret == null) {
            ServingCertificate created = create();
            kubernetes
                    .resource(
                            emptySecret().toBuilder().withData(created.print()).build())
                    .create();
            LOG.info("Created Secret {} with {}", settings.webhookSecret(), created);
            return created;
        }
        ServingCertificate stored;
        try {
            Map<String, String> data = Objects.requireNonNullElse(secret.getData(), Map.of());
            stored = ServingCertificate.parse(data, hosts.get(0), clock.instant());
        } catch (FormatException e) {
            ServingCertificate created = create();
            update(secret, created);
            LOG.warn(
                    "Replaced the content of Secret {} with {}: {}", settings.webhookSecret(), created, e.getMessage());
            return created;
        }
        if (stored.dueForRenewal(hosts, clock.instant()) || !stored.isForClients()) {
            if (served == null) { // the process has just started, and the webhooks trust the stored certificate
                serve(stored);
            }
            ServingCertificate renewed =
                    ServingCertificate.create(hosts, clock.instant(), List.of(stored.certificate()));
            update(secret, renewed);
            LOG.info("Renewed {} with {}", stored, renewed);
            return renewed;
        }
        ServingCertificate trimmed = stored.withoutOldPredecessor(clock.instant());
        if (!trimmed.equals(stored)) {
            update(secret, trimmed);
            LOG.info("Ended the trust in the webhooks' certificate before {}", trimmed);
        }
        return trimmed;
    }

    /** A new certificate; those that this replica uses stay trusted until it uses the new one. */
    private ServingCertificate create() {
        List<X509Certificate> predecessors = Stream.concat(
                        served().stream().map(ServingCertificate::certificate), agents.presented())
                .distinct()
                .toList();
        return ServingCertificate.create(hosts, clock.instant(), predecessors);
    }

    private Secret emptySecret() {
        return new SecretBuilder()
                .withNewMetadata()
                .withNamespace(settings.namespace())
                .withName(settings.webhookSecret())
                .addToLabels("app.kubernetes.io/part-of", "aliquot")
                .endMetadata()
                .withType("kubernetes.io/tls")
                .build();
    }

    /** Fails with a conflict if the Secret has changed since: it carries the resourceVersion that was read. */
    private void update(Secret secret, ServingCertificate certificate) {
        kubernetes
                .resource(secret.toBuilder().withData(certificate.print()).build())
                .update();
    }

    /** Makes the webhooks trust the certificate. Returns whether they did before. */
    private boolean ensureTrusted(@Nullable MutatingWebhookConfiguration configuration, ServingCertificate stored) {
        List<MutatingWebhook> webhooks = configuration == null ? List.of() : configuration.getWebhooks();
        if (configuration == null || webhooks.stream().noneMatch(webhook -> REQUIRED.equals(webhook.getName()))) {
            waitingFor = "webhook " + REQUIRED + " in MutatingWebhookConfiguration " + settings.webhookConfiguration();
            throw new IllegalStateException("expected " + waitingFor + ", found none; install the chart's webhooks");
        }
        var patch = new StringBuilder();
        for (int i = 0; i < webhooks.size(); i++) {
            MutatingWebhook webhook = webhooks.get(i);
            if (webhook.getName().endsWith(OURS)
                    && !stored.caBundle().equals(webhook.getClientConfig().getCaBundle())) {
                patch.append(',').append(setCaBundle(i, webhook.getName(), stored.caBundle()));
            }
        }
        if (patch.isEmpty()) {
            return true;
        }
        waitingFor = "the webhooks' caBundle";
        kubernetes
                .resource(configuration)
                .patch(
                        PatchContext.of(PatchType.JSON),
                        "[" + testVersion(configuration.getMetadata().getResourceVersion()) + patch + "]");
        LOG.info("Updated the webhooks' caBundle to trust {}", stored);
        return false;
    }

    private static String testVersion(String resourceVersion) {
        return """
            {"op":"test","path":"/metadata/resourceVersion","value":"%s"}""".formatted(resourceVersion);
    }

    private static String setCaBundle(int index, String name, String caBundle) {
        String webhook = "/webhooks/" + index;
        return """
            {"op":"test","path":"%1$s/name","value":"%2$s"},\
            {"op":"add","path":"%1$s/clientConfig/caBundle","value":"%3$s"}""".formatted(webhook, name, caBundle);
    }
}
