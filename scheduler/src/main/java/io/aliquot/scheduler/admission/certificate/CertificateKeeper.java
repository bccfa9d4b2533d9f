package io.aliquot.scheduler.admission.certificate;

import io.aliquot.api.FormatException;
import io.aliquot.scheduler.server.CertificateSource;
import io.aliquot.scheduler.server.Readiness;
import io.fabric8.kubernetes.api.model.Secret;
import io.fabric8.kubernetes.api.model.SecretBuilder;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhook;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfiguration;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.net.HttpURLConnection;
import java.time.Clock;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps the webhooks trusted. Every few seconds it looks at the Secret, which all replicas share and whoever comes first
 * writes, and at the webhooks' {@code caBundle}, and puts right what is wrong with either; each look starts from what it
 * finds, so it may be killed anywhere.
 *
 * <p>A renewed certificate takes over without a failed call: the Secret gets it, the bundle then trusts both, and only a
 * later look that finds the bundle so begins to show it.
 */
final class CertificateKeeper implements CertificateSource, Readiness, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(CertificateKeeper.class);
    private static final long PERIOD_SECONDS = 5;
    private static final int TRIES = 5;
    /** Unprocessable Content: what a JSON patch's test finds otherwise (k8s.io/apiserver, handlers/patch.go). */
    private static final int FAILED_TEST = 422;

    private static final String REQUIRED = "gpu.aliquot.io";
    private static final List<String> WEBHOOKS = List.of(REQUIRED, "void.aliquot.io", "debug.aliquot.io");

    private final KubernetesClient kubernetes;
    private final Names names;
    private final Clock clock;
    private final ScheduledExecutorService timer;
    private volatile Optional<ServingCertificate> shown = Optional.empty();
    private volatile Optional<String> waitsFor = Optional.of("the webhooks' certificate");
    /** What the look before left trusted: long enough ago for the API server to have heard of it. */
    private Optional<ServingCertificate> seenTrusted = Optional.empty();

    private String trouble = "";

    /**
     * Where things are.
     *
     * @param services by which we are reached, in {@code namespace}; by the first the API server reaches the webhooks
     * @param secret in {@code namespace}
     * @param configuration a MutatingWebhookConfiguration
     */
    record Names(String namespace, List<String> services, String secret, String configuration) {
        Names {
            services = List.copyOf(services);
        }

        String host() {
            return hosts().get(0);
        }

        List<String> hosts() {
            return services.stream()
                    .map(service -> service + "." + namespace + ".svc")
                    .toList();
        }
    }

    CertificateKeeper(KubernetesClient kubernetes, Names names, Clock clock) {
        this.kubernetes = kubernetes;
        this.names = names;
        this.clock = clock;
        this.timer = Executors.newSingleThreadScheduledExecutor(task -> {
            var thread = new Thread(task, "certificate");
            thread.setDaemon(true);
            return thread;
        });
    }

    void start() {
        var unused = timer.scheduleWithFixedDelay(this::lookAndLog, 0, PERIOD_SECONDS, TimeUnit.SECONDS);
    }

    @Override
    public void close() {
        timer.shutdownNow();
    }

    @Override
    public Optional<Identity> current() {
        return shown.map(ServingCertificate::identity);
    }

    @Override
    public Optional<String> waitsFor() {
        return waitsFor;
    }

    /**
     * Looks once and puts right what is wrong.
     *
     * @throws KubernetesClientException where the API server can't be asked or refuses
     */
    void look() {
        for (int i = 1; ; i++) {
            try {
                lookOnce();
                return;
            } catch (KubernetesClientException e) {
                // Another replica was faster: it has changed what we were about to, since we read it.
                boolean raced = e.getCode() == HttpURLConnection.HTTP_CONFLICT || e.getCode() == FAILED_TEST;
                if (!raced || i == TRIES) {
                    throw e;
                }
            }
        }
    }

    /**
     * Reads the webhooks before the Secret and writes them only as they were read: who was held up in between must not
     * put back a bundle that another replica has meanwhile followed with a newer certificate.
     */
    private void lookOnce() {
        Optional<MutatingWebhookConfiguration> configuration = Optional.ofNullable(kubernetes
                .admissionRegistration()
                .v1()
                .mutatingWebhookConfigurations()
                .withName(names.configuration())
                .get());
        ServingCertificate kept = keep();
        boolean trusted = bundleWasRight(configuration, kept);
        if (shown.isEmpty() || (trusted && seenTrusted.equals(Optional.of(kept)))) {
            shown = Optional.of(kept);
        }
        seenTrusted = Optional.of(kept);
        waitsFor = Optional.empty();
    }

    private void lookAndLog() {
        try {
            look();
            trouble = "";
        } catch (RuntimeException e) {
            String now = e.getMessage() + (e.getCause() == null ? "" : " (" + e.getCause() + ")");
            if (!now.equals(trouble)) { // the same at every look would drown the log
                LOG.warn("cannot keep the webhooks' certificate, and tries again every {} s: {}", PERIOD_SECONDS, now);
            }
            trouble = now;
        }
    }

    /** What the Secret holds, after putting there what it should. */
    private ServingCertificate keep() {
        Secret secret = kubernetes
                .secrets()
                .inNamespace(names.namespace())
                .withName(names.secret())
                .get();
        if (secret == null) {
            ServingCertificate created = create();
            kubernetes
                    .resource(empty().toBuilder().withData(created.print()).build())
                    .create();
            LOG.info("created secret {} with {}", names.secret(), created);
            return created;
        }
        ServingCertificate kept;
        try {
            Map<String, String> data = Objects.requireNonNullElse(secret.getData(), Map.of());
            kept = ServingCertificate.parse(data, names.host(), clock.instant());
        } catch (FormatException e) {
            ServingCertificate created = create();
            update(secret, created);
            LOG.warn("replaced the content of secret {} with {}: {}", names.secret(), created, e.getMessage());
            return created;
        }
        if (kept.dueForRenewal(names.hosts(), clock.instant())) {
            if (shown.isEmpty()) { // just started, so it is this one that the webhooks trust
                shown = Optional.of(kept);
            }
            ServingCertificate renewed =
                    ServingCertificate.create(names.hosts(), clock.instant(), Optional.of(kept.certificate()));
            update(secret, renewed);
            LOG.info("renewed {} with {}", kept, renewed);
            return renewed;
        }
        ServingCertificate settled = kept.settled(clock.instant());
        if (!settled.equals(kept)) {
            update(secret, settled);
            LOG.info("the webhooks' certificate before {} is no longer trusted", settled);
        }
        return settled;
    }

    /** Trusting what we still show, so that its end disturbs nobody. */
    private ServingCertificate create() {
        return ServingCertificate.create(names.hosts(), clock.instant(), shown.map(ServingCertificate::certificate));
    }

    private Secret empty() {
        return new SecretBuilder()
                .withNewMetadata()
                .withNamespace(names.namespace())
                .withName(names.secret())
                .addToLabels("app.kubernetes.io/part-of", "aliquot")
                .endMetadata()
                .withType("kubernetes.io/tls")
                .build();
    }

    /** Only if nobody else has: the secret carries the resourceVersion it was read with. */
    private void update(Secret secret, ServingCertificate certificate) {
        kubernetes
                .resource(secret.toBuilder().withData(certificate.print()).build())
                .update();
    }

    /** Whether the webhooks trusted it already; afterwards they do. */
    private boolean bundleWasRight(Optional<MutatingWebhookConfiguration> configuration, ServingCertificate kept) {
        List<MutatingWebhook> webhooks =
                configuration.map(MutatingWebhookConfiguration::getWebhooks).orElse(List.of());
        if (webhooks.stream().noneMatch(webhook -> REQUIRED.equals(webhook.getName()))) {
            waitsFor = Optional.of("webhook " + REQUIRED + " in MutatingWebhookConfiguration " + names.configuration());
            throw new IllegalStateException("there is no " + waitsFor.orElseThrow());
        }
        var patch = new StringBuilder();
        for (int i = 0; i < webhooks.size(); i++) {
            MutatingWebhook webhook = webhooks.get(i);
            if (WEBHOOKS.contains(webhook.getName())
                    && !kept.caBundle().equals(webhook.getClientConfig().getCaBundle())) {
                patch.append(',').append(trust(i, webhook.getName(), kept.caBundle()));
            }
        }
        if (patch.isEmpty()) {
            return true;
        }
        waitsFor = Optional.of("the webhooks' caBundle");
        MutatingWebhookConfiguration read = configuration.orElseThrow();
        kubernetes
                .resource(read)
                .patch(
                        PatchContext.of(PatchType.JSON),
                        "[" + unchanged(read.getMetadata().getResourceVersion()) + patch + "]");
        LOG.info("put the webhooks' caBundle right: {}", kept);
        return false;
    }

    private static String unchanged(String resourceVersion) {
        return """
            {"op":"test","path":"/metadata/resourceVersion","value":"%s"}""".formatted(resourceVersion);
    }

    private static String trust(int index, String name, String caBundle) {
        String webhook = "/webhooks/" + index;
        return """
            {"op":"test","path":"%1$s/name","value":"%2$s"},\
            {"op":"add","path":"%1$s/clientConfig/caBundle","value":"%3$s"}""".formatted(webhook, name, caBundle);
    }
}
