package io.aliquot.scheduler.certificate;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.scheduler.nodeagent.AgentTls;
import io.aliquot.scheduler.server.health.Readiness;
import io.aliquot.scheduler.server.ports.TlsCertificate;
import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.api.model.APIService;
import io.fabric8.kubernetes.api.model.Pod;
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
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps an authority and a valid certificate that it issues in two Secrets, and tells node agents which certificates of
 * their client to accept ({@link AgentClients}). Every 5 s each replica reads all of them and repairs them; the first
 * replica writes, the others adopt. A reconciliation depends only on what it reads and on the certificates that this
 * replica uses, so the process may be killed at any point.
 *
 * <p>The chart's Job writes the authority into the {@code caBundle} of the webhooks and of the APIService ({@link
 * CaBundles}); a replica only reads them. Until they trust a new authority, it issues nothing: replicas go on with what
 * they trust. Otherwise a renewal fails no call, since the {@code caBundle} stays. A replica serves a new certificate only
 * after a later reconciliation, when the other replicas have read it.
 *
 * <p>One thread reconciles; {@link #waitsFor}, {@link #remark}, {@link #served} and {@link #caBundlesAreCurrent} are
 * thread-safe.
 */
final class CertificateKeeper implements Readiness, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(CertificateKeeper.class);
    private static final long PERIOD_SECONDS = 5;
    private static final int MAX_ATTEMPTS = 5;

    // Names of the chart's objects.
    static final String SERVICE = "aliquot-webhook";
    static final String SECRET = "aliquot-webhook-tls";
    static final String AUTHORITY_SECRET = "aliquot-webhook-ca";
    static final String CONFIGURATION = "aliquot";

    private static final String REQUIRED = "gpu.aliquot.io";
    /** How the names of the chart's webhooks end; its values decide which of them there are. */
    private static final String OURS = ".aliquot.io";

    private static final String API_SERVICE = "v1alpha1.gpu.aliquot.io";
    /** The chart's names of the components whose pods mount the Secrets: the Job's ({@link CaBundles}) and aliquot-api's. */
    private static final List<String> MOUNTING = List.of("ca-bundles", "api");

    private static final Set<String> ENDED = Set.of("Succeeded", "Failed");
    private static final String BUMP =
            "{\"metadata\":{\"annotations\":{\"" + Annotations.BUMPED_VERSION + "\":\"%s\"}}}";

    private static final String CA_BUNDLES = "the Job aliquot-ca-bundles-… to write the caBundles";

    // What is kept, for the log.
    private static final String WEBHOOKS = "the webhooks' certificate";

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
    /** What the previous reconciliation has found or written; the other replicas have read it since. */
    private @Nullable ServingCertificate storedBefore;
    /** Whose caBundle does not trust the authority; null before the first reconciliation. */
    private volatile @Nullable List<String> outdated;

    /** The pods whose Secrets this replica has had refreshed, by uid. */
    private final Set<String> refreshed = new HashSet<>();

    private final AgentClients agents;
    /** The error of each that cannot be kept now. */
    private final Map<String, String> lastErrors = new HashMap<>();

    CertificateKeeper(
            KubernetesClient kubernetes,
            Settings settings,
            Clock clock,
            TlsCertificate ports,
            Consumer<List<X509Certificate>> acceptedByAgents,
            AgentTls agentTls) {
        this.kubernetes = kubernetes;
        this.settings = settings;
        this.hosts = Stream.of(SERVICE, settings.apiGroupService())
                .filter(service -> !service.isEmpty())
                .distinct()
                .map(service -> service + "." + settings.namespace() + ".svc")
                .toList();
        this.clock = clock;
        this.ports = ports;
        this.agents = new AgentClients(clock, acceptedByAgents, agentTls);
        this.timer = Executors.newSingleThreadScheduledExecutor(task -> {
            var thread = new Thread(task, "certificate");
            thread.setDaemon(true);
            return thread;
        });
    }

    void start() {
        timer.execute(this::reconcilePeriodically);
    }

    /** More often until the replica is ready: an installation waits for it. */
    private void reconcilePeriodically() {
        reconcileAndLog();
        var unused = timer.schedule(
                this::reconcilePeriodically, waitingFor.isEmpty() ? PERIOD_SECONDS : 1, TimeUnit.SECONDS);
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

    @Override
    public Optional<String> remark() {
        return Optional.ofNullable(outdated).filter(list -> !list.isEmpty()).map(CertificateKeeper::advice);
    }

    private static String advice(List<String> outdated) {
        return "the caBundle of " + String.join(", ", outdated)
                + " lacks the certificate authority until the Job aliquot-ca-bundles-… runs (docs/install.md)";
    }

    /** Whether every caBundle contains the authority; empty before the first reconciliation. */
    Optional<Boolean> caBundlesAreCurrent() {
        return Optional.ofNullable(outdated).map(List::isEmpty);
    }

    /**
     * Reads everything once and repairs the Secrets. Logs errors of the APIService: the webhooks do not depend on it.
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
        return e.getCode() == HttpURLConnection.HTTP_CONFLICT;
    }

    private void tryReconcile() {
        Map<String, String> caBundles = caBundles();
        ServingCertificate authority = ensureAuthority(caBundles);
        List<String> outdatedNow = distrusting(caBundles, authority.certificate());
        if (!outdatedNow.isEmpty() && !outdatedNow.equals(outdated)) {
            LOG.warn("{}", advice(outdatedNow));
        }
        outdated = outdatedNow;
        ServingCertificate stored = ensureSecret(authority, outdatedNow.isEmpty());
        if (!outdatedNow.isEmpty()) {
            attempt("the Secrets in the mounts of other pods", this::refreshMounts);
        }
        ports.trustReplicas(stored.trusted());
        boolean trusted = distrusting(caBundles, stored.certificate()).isEmpty();
        if (served == null || (trusted && stored.equals(storedBefore))) {
            serve(stored);
        }
        storedBefore = stored;
        ServingCertificate serves = served;
        if (serves != null) {
            agents.reconcile(stored, serves);
        }
        if (!caBundles.containsKey(REQUIRED)) {
            waitingFor = "webhook " + REQUIRED + " in MutatingWebhookConfiguration " + CONFIGURATION;
            throw new IllegalStateException("expected " + waitingFor + ", found none; install the chart's webhooks");
        }
        if (trusted) {
            waitingFor = "";
        } else if (!waitingFor.isEmpty()) {
            waitingFor = CA_BUNDLES;
        }
    }

    /**
     * Has the kubelet show the Secrets to the pods that mount them, which may have started before the Secrets were created: the
     * kubelet refreshes the Secrets in a pod's volumes when the pod changes, otherwise only after a minute or more. Pods that
     * start later mount them as they are.
     */
    private void refreshMounts() {
        List<Pod> waiting = MOUNTING.stream()
                .flatMap(component -> kubernetes
                        .pods()
                        .inNamespace(settings.namespace())
                        .withLabel("app.kubernetes.io/component", component)
                        .list()
                        .getItems()
                        .stream())
                .filter(pod -> !ENDED.contains(textOf(pod.getStatus().getPhase())))
                .toList();
        refreshed.retainAll(waiting.stream().map(CertificateKeeper::uid).toList());
        for (Pod pod : waiting) {
            if (!refreshed.contains(uid(pod))) {
                kubernetes
                        .resource(pod)
                        .patch(
                                PatchContext.of(PatchType.JSON_MERGE),
                                BUMP.formatted(pod.getMetadata().getResourceVersion()));
                refreshed.add(uid(pod));
            }
        }
    }

    private static String uid(Pod pod) {
        return pod.getMetadata().getUid();
    }

    /** The caBundle of each webhook of the chart and of the APIService, by their names; empty where there is none. */
    private Map<String, String> caBundles() {
        var caBundles = new LinkedHashMap<String, String>();
        MutatingWebhookConfiguration configuration = kubernetes
                .admissionRegistration()
                .v1()
                .mutatingWebhookConfigurations()
                .withName(CONFIGURATION)
                .get();
        if (configuration != null) {
            for (MutatingWebhook webhook : configuration.getWebhooks()) {
                if (webhook.getName().endsWith(OURS)) {
                    caBundles.put(
                            webhook.getName(), textOf(webhook.getClientConfig().getCaBundle()));
                }
            }
        }
        if (!settings.apiGroupService().isEmpty()) {
            attempt("APIService " + API_SERVICE, () -> {
                APIService service =
                        kubernetes.apiServices().withName(API_SERVICE).get();
                if (service == null) {
                    throw new IllegalStateException("expected it, found none; install the chart's");
                }
                caBundles.put(API_SERVICE, textOf(service.getSpec().getCaBundle()));
            });
        }
        return caBundles;
    }

    private static String textOf(@Nullable String caBundle) {
        return Objects.requireNonNullElse(caBundle, "");
    }

    /** The names of those that do not trust a certificate. */
    private static List<String> distrusting(Map<String, String> caBundles, X509Certificate certificate) {
        return caBundles.entrySet().stream()
                .filter(entry -> !ServingCertificate.trusts(entry.getValue(), certificate))
                .map(Map.Entry::getKey)
                .toList();
    }

    private void reconcileAndLog() {
        try {
            reconcile();
            lastErrors.remove(WEBHOOKS);
        } catch (RuntimeException e) {
            logOnce(WEBHOOKS, e);
        }
    }

    /** Runs a step that the webhooks do not depend on, and logs what it throws. */
    private void attempt(String what, Runnable step) {
        try {
            step.run();
            lastErrors.remove(what);
        } catch (RuntimeException e) {
            if (e instanceof KubernetesClientException failure && raced(failure)) {
                throw failure;
            }
            logOnce(what, e);
        }
    }

    /** Logs an error once, not every 5 s. */
    private void logOnce(String what, RuntimeException e) {
        String error = e.getMessage() + (e.getCause() == null ? "" : " (" + e.getCause() + ")");
        if (!error.equals(lastErrors.put(what, error))) {
            LOG.warn("Cannot keep {}; retrying every {} s: {}", what, PERIOD_SECONDS, error);
        }
    }

    /** A Secret in the version that was read or written, and its content. */
    private record Stored(Secret secret, ServingCertificate content) {}

    /**
     * The authority, after creation, replacement or renewal where needed. What the API server trusts meanwhile goes into
     * its {@code ca.crt}, which the Job copies.
     */
    private ServingCertificate ensureAuthority(Map<String, String> caBundles) {
        Stored stored = ensure(
                AUTHORITY_SECRET,
                ServingCertificate.AUTHORITY,
                () -> ServingCertificate.createAuthority(
                        clock.instant(),
                        caBundles.values().stream()
                                .flatMap(caBundle -> ServingCertificate.bundled(caBundle).stream())
                                .distinct()
                                .toList()));
        ServingCertificate authority = stored.content();
        if (authority.dueForRenewal(List.of(), clock.instant())) {
            return update(
                    stored, ServingCertificate.createAuthority(clock.instant(), List.of(authority.certificate())));
        }
        return distrusting(caBundles, authority.certificate()).isEmpty()
                ? update(stored, authority.withoutOldPredecessor(clock.instant()))
                : authority;
    }

    /**
     * The certificate, after creation, replacement or renewal where needed.
     *
     * @param authorityIsTrusted whether the API server accepts what the authority issues
     */
    private ServingCertificate ensureSecret(ServingCertificate authority, boolean authorityIsTrusted) {
        Stored stored = ensure(SECRET, hosts.get(0), () -> create(authority));
        ServingCertificate certificate = stored.content();
        if (authorityIsTrusted
                && (certificate.dueForRenewal(hosts, clock.instant())
                        || !authority.issued(certificate.certificate()))) {
            if (served == null) { // the process has just started, and the webhooks trust the stored certificate
                serve(certificate);
            }
            return update(
                    stored,
                    ServingCertificate.create(authority, hosts, clock.instant(), List.of(certificate.certificate())));
        }
        return update(stored, certificate.withoutOldPredecessor(clock.instant()));
    }

    /** Reads a Secret, creates it if there is none, and replaces its content if that is not a valid certificate. */
    private Stored ensure(String name, String host, Supplier<ServingCertificate> creation) {
        Secret secret = kubernetes
                .secrets()
                .inNamespace(settings.namespace())
                .withName(name)
                .get();
        if (secret == null) {
            ServingCertificate created = creation.get();
            LOG.info("Creating Secret {} with {}", name, created);
            Secret empty = new SecretBuilder()
                    .withNewMetadata()
                    .withNamespace(settings.namespace())
                    .withName(name)
                    .addToLabels("app.kubernetes.io/part-of", "aliquot")
                    .endMetadata()
                    .withType("kubernetes.io/tls")
                    .withData(created.print())
                    .build();
            return new Stored(kubernetes.resource(empty).create(), created);
        }
        try {
            Map<String, String> data = Objects.requireNonNullElse(secret.getData(), Map.of());
            return new Stored(secret, ServingCertificate.parse(data, host, clock.instant()));
        } catch (FormatException e) {
            ServingCertificate created = creation.get();
            LOG.warn("Replacing the content of Secret {} with {}: {}", name, created, e.getMessage());
            return new Stored(write(secret, created), created);
        }
    }

    /** Replaces a Secret's content unless it is the same. Returns the new content. */
    private ServingCertificate update(Stored stored, ServingCertificate wanted) {
        if (!wanted.equals(stored.content())) {
            LOG.info(
                    "Replacing {} in Secret {} with {}",
                    stored.content(),
                    stored.secret().getMetadata().getName(),
                    wanted);
            var unused = write(stored.secret(), wanted);
        }
        return wanted;
    }

    /** A new certificate; those that this replica uses stay trusted until it uses the new one. */
    private ServingCertificate create(ServingCertificate authority) {
        List<X509Certificate> predecessors = Stream.concat(
                        served().stream().map(ServingCertificate::certificate), agents.presented())
                .distinct()
                .toList();
        return ServingCertificate.create(authority, hosts, clock.instant(), predecessors);
    }

    /** Fails with a conflict if the Secret has changed since: it carries the resourceVersion that was read. */
    private Secret write(Secret secret, ServingCertificate certificate) {
        return kubernetes
                .resource(secret.toBuilder().withData(certificate.print()).build())
                .update();
    }
}
