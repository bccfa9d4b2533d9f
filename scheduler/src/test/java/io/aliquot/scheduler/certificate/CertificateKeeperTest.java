package io.aliquot.scheduler.certificate;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.scheduler.cluster.FakeCluster;
import io.aliquot.scheduler.nodeagent.AcceptedClients;
import io.aliquot.scheduler.nodeagent.AgentTls;
import io.aliquot.scheduler.server.ports.TlsCertificate;
import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.api.model.APIServiceBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.Secret;
import io.fabric8.kubernetes.api.model.SecretBuilder;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhook;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfiguration;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfigurationBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.server.mock.EnableKubernetesMockClient;
import io.micrometer.prometheusmetrics.PrometheusConfig;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.time.Instant;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@EnableKubernetesMockClient(crud = true, https = false)
class CertificateKeeperTest {
    static final String HOST = "aliquot-webhook.aliquot.svc";
    private static final String AUTHORITY = "aliquot-webhook-ca";

    @SuppressWarnings("NullAway.Init") // set by the extension
    private KubernetesClient kubernetes;

    private final ManualClock clock = new ManualClock(Instant.parse("2026-03-01T00:00:00Z"));

    @BeforeEach
    void webhooks() {
        kubernetes.resource(configuration()).create();
    }

    static MutatingWebhookConfiguration configuration() {
        return new MutatingWebhookConfigurationBuilder()
                .withNewMetadata()
                .withName("aliquot")
                .endMetadata()
                .addNewWebhook()
                .withName("other.example.com")
                .withNewClientConfig()
                .withCaBundle("dGhlaXJz")
                .endClientConfig()
                .endWebhook()
                .addNewWebhook()
                .withName("gpu.aliquot.io")
                .withNewClientConfig()
                .withCaBundle("bm9uZQ==")
                .endClientConfig()
                .endWebhook()
                .addNewWebhook()
                .withName("namespace.gpu.aliquot.io")
                .withNewClientConfig()
                .endClientConfig()
                .endWebhook()
                .build();
    }

    @Test
    void theFirstReconciliationCreatesAnAuthorityAndACertificateAndTheReplicaIsReadyOnceTheWebhooksTrustIt() {
        CertificateKeeper keeper = keeper();
        assertThat(keeper.waitsFor()).contains("the webhooks' certificate");
        assertThat(keeper.served()).isEmpty();

        keeper.reconcile();

        assertThat(served(keeper)).isEqualTo(stored().certificate());
        assertThat(authority().issued(served(keeper))).isTrue();
        assertThat(keeper.waitsFor())
                .hasValueSatisfying(text -> assertThat(text).contains("the Job aliquot-ca-bundles"));
        assertThat(List.of(secret().getType(), secret(AUTHORITY).getType())).containsOnly("kubernetes.io/tls");

        runJob(kubernetes);
        keeper.reconcile();

        assertThat(keeper.waitsFor()).isEmpty();
        assertThat(keeper.remark()).isEmpty();
        assertThat(bundles())
                .containsExactly("dGhlaXJz", authority().caBundle(), authority().caBundle());
    }

    /** The kubelet shows a Secret that is created later to a pod when the pod changes. */
    @ParameterizedTest
    @ValueSource(strings = {"ca-bundles", "api"})
    void aPodThatWaitsForASecretIsChangedOnce(String component) {
        createPod(component, "waits", "Running");
        createPod(component, "has-ended", "Succeeded");
        createPod("scheduler", "mounts-none", "Running");
        CertificateKeeper keeper = keeper();

        keeper.reconcile();

        String version = pod("waits").getMetadata().getResourceVersion();
        assertThat(pod("waits").getMetadata().getAnnotations()).containsOnlyKeys("aliquot.io/moved-on");
        assertThat(pod("has-ended").getMetadata().getAnnotations()).isNullOrEmpty();
        assertThat(pod("mounts-none").getMetadata().getAnnotations()).isNullOrEmpty();

        keeper.reconcile();
        assertThat(pod("waits").getMetadata().getResourceVersion()).isEqualTo(version);

        createPod(component, "comes-later", "Pending");
        keeper.reconcile();
        assertThat(pod("comes-later").getMetadata().getAnnotations()).containsOnlyKeys("aliquot.io/moved-on");
    }

    private void createPod(String component, String name, String phase) {
        kubernetes
                .resource(new PodBuilder()
                        .withNewMetadata()
                        .withNamespace("aliquot")
                        .withName(name)
                        .addToLabels("app.kubernetes.io/component", component)
                        .endMetadata()
                        .withNewStatus()
                        .withPhase(phase)
                        .endStatus()
                        .build())
                .create();
    }

    private Pod pod(String name) {
        return kubernetes.pods().inNamespace("aliquot").withName(name).get();
    }

    /** The account of a replica could otherwise make the API server call any program for every pod. */
    @Test
    void aReplicaWritesNoWebhookConfigurationInAYear() throws CertificateException {
        CertificateKeeper keeper = keeper();
        keeper.reconcile();
        runJob(kubernetes);
        ServingCertificate issuer = authority();
        String version = webhookConfiguration().getMetadata().getResourceVersion();

        for (int day = 0; day < 365; day += 5) {
            clock.advance(Duration.ofDays(5));
            keeper.reconcile();
            assertThat(ServingCertificate.trusts(bundles().get(1), served(keeper)))
                    .isTrue();
            served(keeper).checkValidity(Date.from(clock.instant()));
        }

        assertThat(authority().certificate()).isEqualTo(issuer.certificate());
        assertThat(webhookConfiguration().getMetadata().getResourceVersion()).isEqualTo(version);
    }

    /** Before version 0.2.0 the webhooks trusted a certificate that nothing had issued. */
    @Test
    void anUpgradeKeepsTheSelfSignedCertificateUntilTheWebhooksTrustTheAuthority() {
        var selfSigned = ServingCertificate.create(
                null, "aliquot-webhook", List.of(HOST), ServingCertificateTest.SERVER, clock.instant(), List.of());
        kubernetes
                .resource(new SecretBuilder()
                        .withNewMetadata()
                        .withNamespace("aliquot")
                        .withName("aliquot-webhook-tls")
                        .endMetadata()
                        .withData(selfSigned.print())
                        .build())
                .create();
        setBundles(kubernetes, selfSigned.caBundle());
        CertificateKeeper keeper = keeper();

        keeper.reconcile();
        keeper.reconcile();

        assertThat(keeper.waitsFor()).isEmpty();
        assertThat(keeper.remark()).isPresent();
        assertThat(keeper.caBundlesAreCurrent()).contains(false);
        assertThat(served(keeper)).isEqualTo(selfSigned.certificate()).isEqualTo(stored().certificate());
        // Replicas of the former version serve it until the upgrade is complete.
        assertThat(authority().trusted()).containsExactly(authority().certificate(), selfSigned.certificate());

        runJob(kubernetes);
        keeper.reconcile();
        assertThat(served(keeper)).isEqualTo(selfSigned.certificate());
        keeper.reconcile();
        assertThat(authority().issued(served(keeper))).isTrue();
        assertThat(keeper.caBundlesAreCurrent()).contains(true);
        assertThat(keeper.remark()).isEmpty();
    }

    @Test
    void aLostAuthorityIsReplacedWithoutAnInterruption() {
        CertificateKeeper keeper = keeper();
        keeper.reconcile();
        runJob(kubernetes);
        keeper.reconcile();
        ServingCertificate lost = authority();
        kubernetes.resource(secret(AUTHORITY)).delete();

        keeper.reconcile();
        clock.advance(Duration.ofDays(61)); // the serving certificate is due for renewal
        keeper.reconcile();
        CertificateKeeper restarted = keeper();
        restarted.reconcile();

        assertThat(authority().certificate()).isNotEqualTo(lost.certificate());
        assertThat(authority().trusted()).contains(lost.certificate());
        assertThat(keeper.caBundlesAreCurrent()).contains(false);
        assertThat(keeper.remark())
                .hasValueSatisfying(text -> assertThat(text).contains("gpu.aliquot.io", "until the Job"));
        for (CertificateKeeper one : List.of(keeper, restarted)) {
            assertThat(one.waitsFor()).isEmpty();
            assertThat(lost.issued(served(one))).isTrue();
        }

        runJob(kubernetes);
        keeper.reconcile();
        keeper.reconcile();
        assertThat(authority().issued(served(keeper))).isTrue();
        assertThat(authority().trusted()).containsExactly(authority().certificate());
    }

    @Test
    void anAuthorityIsRenewedAfterTwoThirdsOfTenYearsAndTrustedBesideItsPredecessor() {
        CertificateKeeper keeper = keeper();
        keeper.reconcile();
        runJob(kubernetes);
        X509Certificate first = authority().certificate();
        clock.advance(Duration.ofDays(2434)); // the program did not run
        CertificateKeeper restarted = keeper();
        restarted.reconcile();
        assertThat(authority().certificate()).isEqualTo(first);
        clock.advance(Duration.ofDays(1));

        restarted.reconcile();

        assertThat(authority().trusted()).containsExactly(authority().certificate(), first);
        assertThat(authority().certificate()).isNotEqualTo(first);
        assertThat(restarted.waitsFor()).isEmpty();
    }

    @Test
    void servesTheSameCertificateAfterARestart() {
        keeper().reconcile();
        ServingCertificate first = stored();
        CertificateKeeper restarted = keeper();

        restarted.reconcile();

        assertThat(served(restarted)).isEqualTo(first.certificate());
        assertThat(stored()).isEqualTo(first);
    }

    @Test
    void writesNothingWhileTheCertificateIsValidAndTrusted() {
        CertificateKeeper keeper = keeper();
        keeper.reconcile();
        runJob(kubernetes);
        List<String> versions = versions();

        keeper.reconcile();
        clock.advance(Duration.ofDays(59));
        keeper.reconcile();

        assertThat(versions()).isEqualTo(versions);
    }

    /** The other replicas and the node agents must know it first. */
    @Test
    void servesACertificateThatAnotherReplicaRenewedOnlyAfterTheNextReconciliation() {
        CertificateKeeper one = keeper();
        CertificateKeeper other = keeper();
        one.reconcile();
        runJob(kubernetes);
        other.reconcile();
        ServingCertificate first = stored();
        clock.advance(Duration.ofDays(80));

        one.reconcile();
        other.reconcile();

        assertThat(stored()).isNotEqualTo(first);
        assertThat(served(one)).isEqualTo(first.certificate());
        assertThat(served(other)).isEqualTo(first.certificate());
        one.reconcile();
        other.reconcile();
        assertThat(served(one)).isEqualTo(stored().certificate());
        assertThat(served(other)).isEqualTo(stored().certificate());
    }

    @Test
    void aChangedCaBundleIsAnnouncedAndTheReplicaStaysReadyForAllElse() {
        CertificateKeeper keeper = keeper();
        keeper.reconcile();
        runJob(kubernetes);
        keeper.reconcile();
        kubernetes.resource(configuration()).update();

        keeper.reconcile();

        assertThat(keeper.waitsFor()).isEmpty();
        assertThat(keeper.caBundlesAreCurrent()).contains(false);
        assertThat(keeper.remark())
                .contains("the caBundle of gpu.aliquot.io, namespace.gpu.aliquot.io lacks the certificate authority"
                        + " until the Job aliquot-ca-bundles-… runs (docs/install.md)");
    }

    @Test
    void isNotReadyWhileTheWebhooksAreMissing() {
        CertificateKeeper keeper = keeper();
        keeper.reconcile();
        kubernetes.resource(configuration()).delete();

        assertThatThrownBy(keeper::reconcile).hasMessageContaining("gpu.aliquot.io");
        assertThat(keeper.waitsFor()).contains("webhook gpu.aliquot.io in MutatingWebhookConfiguration aliquot");

        kubernetes.resource(configuration()).create();
        keeper.reconcile();
        assertThat(keeper.waitsFor()).isPresent();
        runJob(kubernetes);
        keeper.reconcile();
        assertThat(keeper.waitsFor()).isEmpty();
    }

    @Test
    void servesTheOldCertificateUntilTheOtherReplicasKnowTheNewOneWhichTrustTheOldOneForAnHour() {
        CertificateKeeper keeper = keeper();
        keeper.reconcile();
        runJob(kubernetes);
        X509Certificate old = served(keeper);
        clock.advance(Duration.ofDays(60));

        keeper.reconcile();

        assertThat(served(keeper)).isEqualTo(old);
        ServingCertificate renewed = stored();
        assertThat(renewed.certificate()).isNotEqualTo(old);
        assertThat(renewed.trusted()).containsExactly(renewed.certificate(), old);

        keeper.reconcile();
        assertThat(served(keeper)).isEqualTo(renewed.certificate());
        assertThat(stored()).isEqualTo(renewed);

        clock.advance(Duration.ofHours(1));
        keeper.reconcile();
        assertThat(stored().trusted()).containsExactly(renewed.certificate());
        assertThat(served(keeper)).isEqualTo(renewed.certificate());
    }

    @Test
    void theApiServiceMustTrustTheCertificateToo() {
        kubernetes
                .resource(new APIServiceBuilder()
                        .withNewMetadata()
                        .withName("v1alpha1.gpu.aliquot.io")
                        .endMetadata()
                        .withNewSpec()
                        .withGroup("gpu.aliquot.io")
                        .withVersion("v1alpha1")
                        .endSpec()
                        .build())
                .create();
        var keeper = new CertificateKeeper(
                kubernetes, settings("aliquot-group"), clock, new TlsCertificate(), accepted -> {}, new AgentTls());
        keeper.reconcile();
        runJob(kubernetes);

        keeper.reconcile();
        assertThat(keeper.waitsFor()).isPresent();
        assertThat(keeper.remark())
                .hasValueSatisfying(text -> assertThat(text).contains("of v1alpha1.gpu.aliquot.io lacks"));

        kubernetes.apiServices().withName("v1alpha1.gpu.aliquot.io").edit(service -> {
            service.getSpec().setCaBundle(authority().caBundle());
            return service;
        });
        keeper.reconcile();
        assertThat(keeper.waitsFor()).isEmpty();
        assertThat(keeper.remark()).isEmpty();
    }

    @Test
    void renewsTheCertificateWhenAServiceIsAdded() {
        keeper().reconcile();
        runJob(kubernetes);
        X509Certificate old = stored().certificate();
        var upgraded = new CertificateKeeper(
                kubernetes,
                settings("aliquot-extension-api"),
                clock,
                new TlsCertificate(),
                accepted -> {},
                new AgentTls());

        upgraded.reconcile();
        assertThat(served(upgraded)).isEqualTo(old);
        assertThat(stored().trusted()).containsExactly(stored().certificate(), old);

        upgraded.reconcile();
        assertThat(served(upgraded)).isEqualTo(stored().certificate());
        assertThat(stored().dueForRenewal(List.of(HOST, "aliquot-extension-api.aliquot.svc"), clock.instant()))
                .isFalse();

        // A replica from before the upgrade does not change the certificate.
        ServingCertificate withBothServices = stored();
        keeper().reconcile();
        assertThat(stored()).isEqualTo(withBothServices);
    }

    @Test
    void servesTheTrustedCertificateFirstIfRenewalIsDueAtStart() {
        keeper().reconcile();
        runJob(kubernetes);
        X509Certificate old = stored().certificate();
        clock.advance(Duration.ofDays(75)); // the program did not run
        CertificateKeeper keeper = keeper();

        keeper.reconcile();
        assertThat(served(keeper)).isEqualTo(old).isNotEqualTo(stored().certificate());

        keeper.reconcile();
        assertThat(served(keeper)).isEqualTo(stored().certificate());
    }

    @Test
    void adoptsTheRenewalOfAnotherReplica() {
        CertificateKeeper one = keeper();
        CertificateKeeper two = keeper();
        one.reconcile();
        runJob(kubernetes);
        two.reconcile();
        clock.advance(Duration.ofDays(61));
        one.reconcile();
        ServingCertificate renewed = stored();

        two.reconcile();
        one.reconcile();
        two.reconcile();

        assertThat(stored()).isEqualTo(renewed);
        assertThat(served(one)).isEqualTo(renewed.certificate());
        assertThat(served(two)).isEqualTo(renewed.certificate());
    }

    @Test
    void replacesForeignContentAndKeepsTrustInTheServedCertificate() {
        CertificateKeeper keeper = keeper();
        keeper.reconcile();
        runJob(kubernetes);
        X509Certificate old = served(keeper);
        kubernetes
                .resource(secret().toBuilder()
                        .withData(Map.of("tls.crt", "Zm9yZWlnbg==", "tls.key", "", "mine", "eA=="))
                        .build())
                .update();

        keeper.reconcile();

        assertThat(stored().trusted()).containsExactly(stored().certificate(), old);
        assertThat(secret().getData()).containsOnlyKeys("tls.crt", "tls.key", "ca.crt");
        assertThat(secret().getType()).isEqualTo("kubernetes.io/tls");
        keeper.reconcile();
        assertThat(served(keeper)).isEqualTo(stored().certificate());
    }

    @Test
    void fillsAnEmptySecret() {
        kubernetes
                .resource(new SecretBuilder()
                        .withNewMetadata()
                        .withNamespace("aliquot")
                        .withName("aliquot-webhook-tls")
                        .addToLabels("made-by", "installer")
                        .endMetadata()
                        .build())
                .create();

        keeper().reconcile();

        assertThat(stored()).isNotNull();
        assertThat(secret().getMetadata().getLabels()).containsEntry("made-by", "installer");
    }

    @Test
    void replacesAnExpiredCertificate() {
        keeper().reconcile();
        runJob(kubernetes);
        ServingCertificate old = stored();
        clock.advance(Duration.ofDays(91)); // the program did not run
        CertificateKeeper keeper = keeper();

        keeper.reconcile();

        assertThat(served(keeper)).isEqualTo(stored().certificate()).isNotEqualTo(old.certificate());
        assertThat(keeper.waitsFor()).isEmpty();
    }

    @Test
    void recreatesADeletedSecret() {
        CertificateKeeper keeper = keeper();
        keeper.reconcile();
        runJob(kubernetes);
        X509Certificate old = served(keeper);
        kubernetes.resource(secret()).delete();

        keeper.reconcile();
        keeper.reconcile();

        assertThat(served(keeper)).isEqualTo(stored().certificate()).isNotEqualTo(old);
    }

    @Test
    void theMetricsAreTheEndOfTheServedCertificateAndWhetherTheCaBundlesAreCurrent() {
        var metrics = new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);
        CertificateKeeper keeper = new CertificateConfiguration()
                .certificateKeeper(
                        kubernetes,
                        settings(""),
                        clock,
                        new TlsCertificate(),
                        new AcceptedClients(new FakeCluster(), node -> {}, () -> 0),
                        new AgentTls(),
                        metrics);
        assertThat(metrics.scrape())
                .contains("aliquot_certificate_expiry_timestamp_seconds NaN", "aliquot_ca_bundle_current NaN");

        keeper.reconcile();
        assertThat(metrics.scrape()).contains("aliquot_ca_bundle_current 0.0");
        runJob(kubernetes);
        keeper.reconcile();
        assertThat(metrics.scrape()).contains("aliquot_ca_bundle_current 1.0");

        assertThat(metrics.get("aliquot.certificate.expiry.timestamp").gauge().value())
                .isEqualTo((double) served(keeper).getNotAfter().toInstant().getEpochSecond());
    }

    private CertificateKeeper keeper() {
        return new CertificateKeeper(
                kubernetes, settings(""), clock, new TlsCertificate(), accepted -> {}, new AgentTls());
    }

    /** The chart's names in the namespace {@code aliquot}. */
    static Settings settings(String apiGroupService) {
        return Settings.read(
                Map.of(
                        "POD_NAME",
                        "aliquot-1",
                        "POD_NAMESPACE",
                        "aliquot",
                        "ALIQUOT_API_GROUP_SERVICE",
                        apiGroupService)::get);
    }

    private static X509Certificate served(CertificateKeeper keeper) {
        return keeper.served().orElseThrow().certificate();
    }

    private ServingCertificate stored() {
        return ServingCertificate.parse(secret().getData(), HOST, clock.instant());
    }

    private ServingCertificate authority() {
        return ServingCertificate.parse(secret(AUTHORITY).getData(), ServingCertificate.AUTHORITY, clock.instant());
    }

    private Secret secret() {
        return secret("aliquot-webhook-tls");
    }

    private Secret secret(String name) {
        return kubernetes.secrets().inNamespace("aliquot").withName(name).get();
    }

    /** What the Job's program does; the mock server does not merge lists by their keys. */
    static void runJob(KubernetesClient kubernetes) {
        setBundles(
                kubernetes,
                kubernetes
                        .secrets()
                        .inNamespace("aliquot")
                        .withName(AUTHORITY)
                        .get()
                        .getData()
                        .getOrDefault("ca.crt", ""));
    }

    private static void setBundles(KubernetesClient kubernetes, String caBundle) {
        kubernetes
                .admissionRegistration()
                .v1()
                .mutatingWebhookConfigurations()
                .withName("aliquot")
                .edit(configuration -> {
                    configuration.getWebhooks().stream()
                            .filter(webhook -> webhook.getName().endsWith(".aliquot.io"))
                            .forEach(webhook -> webhook.getClientConfig().setCaBundle(caBundle));
                    return configuration;
                });
    }

    private MutatingWebhookConfiguration webhookConfiguration() {
        return kubernetes
                .admissionRegistration()
                .v1()
                .mutatingWebhookConfigurations()
                .withName("aliquot")
                .get();
    }

    private List<String> bundles() {
        return webhookConfiguration().getWebhooks().stream()
                .map(MutatingWebhook::getClientConfig)
                .map(client -> Optional.ofNullable(client.getCaBundle()).orElse(""))
                .toList();
    }

    private List<String> versions() {
        return List.of(
                secret().getMetadata().getResourceVersion(),
                secret(AUTHORITY).getMetadata().getResourceVersion(),
                webhookConfiguration().getMetadata().getResourceVersion());
    }
}
