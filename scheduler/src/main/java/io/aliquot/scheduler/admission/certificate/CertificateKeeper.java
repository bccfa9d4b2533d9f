package io.aliquot.scheduler.admission.certificate;

import io.aliquot.api.FormatException;
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
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps a valid certificate in a Secret and the webhooks' {@code caBundle} trusting it. Every 5 s each replica reads
 * both and repairs them; the first replica writes, the others adopt. A reconciliation depends only on what it reads and
 * on the certificate that this replica serves, so the process may be killed at any point.
 *
 * <p>A renewal fails no call: the Secret gets the new certificate, the {@code caBundle} then trusts both, and a replica
 * serves the new one only after a later reconciliation has found the {@code caBundle} in that state.
 *
 * <p>One thread reconciles; {@link #waitsFor} is thread-safe.
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

    private final KubernetesClient kubernetes;
    private final Settings settings;
    /** The DNS names of the Services; the API server calls the webhooks by the first. */
    private final List<String> hosts;

    private final Clock clock;
    private final TlsCertificate ports;
    private final ScheduledExecutorService timer;
    private @Nullable ServingCertificate served;
    /** What this replica waits for before it is ready; empty once it is ready. */
    private volatile String waitingFor = "the webhooks' certificate";
    /** The certificate that the previous reconciliation left trusted; the API server has noticed it since. */
    private @Nullable ServingCertificate trustedBefore;

    private String lastError = "";

    CertificateKeeper(KubernetesClient kubernetes, Settings settings, Clock clock, TlsCertificate ports) {
        this.kubernetes = kubernetes;
        this.settings = settings;
        this.hosts = Stream.of(settings.webhookService(), settings.apiService())
                .filter(service -> !service.isEmpty())
                .map(service -> service + "." + settings.namespace() + ".svc")
                .toList();
        this.clock = clock;
        this.ports = ports;
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
     * Reads the Secret and the webhooks once and repairs them.
     *
     * @throws KubernetesClientException if the API server is unreachable or refuses
     */
    void reconcile() {
        for (int attempt = 1; ; attempt++) {
            try {
                tryReconcile();
                return;
            } catch (KubernetesClientException e) {
                // Another replica changed the object after this one read it.
                boolean raced = e.getCode() == HttpURLConnection.HTTP_CONFLICT || e.getCode() == UNPROCESSABLE_CONTENT;
                if (!raced || attempt == MAX_ATTEMPTS) {
                    throw e;
                }
            }
        }
    }

    /**
     * Reads the webhooks before the Secret, and writes the webhooks only in the version that it read. A replica that is
     * delayed between the two therefore cannot overwrite a {@code caBundle} with an older certificate than another
     * replica has written meanwhile.
     */
    private void tryReconcile() {
        MutatingWebhookConfiguration configuration = kubernetes
                .admissionRegistration()
                .v1()
                .mutatingWebhookConfigurations()
                .withName(settings.webhookConfiguration())
                .get();
        ServingCertificate stored = ensureSecret();
        ports.trustReplicas(stored.trusted());
        boolean trusted = ensureTrusted(configuration, stored);
        if (served == null || (trusted && stored.equals(trustedBefore))) {
            serve(stored);
        }
        trustedBefore = stored;
        waitingFor = "";
    }

    private void reconcileAndLog() {
        try {
            reconcile();
            lastError = "";
        } catch (RuntimeException e) {
            String error = e.getMessage() + (e.getCause() == null ? "" : " (" + e.getCause() + ")");
            if (!error.equals(lastError)) { // logs an error once, not every 5 s
                LOG.warn("Cannot keep the webhooks' certificate; retrying every {} s: {}", PERIOD_SECONDS, error);
            }
            lastError = error;
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
        if (stored.dueForRenewal(hosts, clock.instant())) {
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

    /** A new certificate; the one that this replica serves stays trusted until it serves the new one. */
    private ServingCertificate create() {
        ServingCertificate predecessor = served;
        List<X509Certificate> predecessors = predecessor == null ? List.of() : List.of(predecessor.certificate());
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
