package io.aliquot.scheduler.certificate;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.scheduler.nodeagent.AgentTls;
import io.aliquot.scheduler.server.TlsCertificate;
import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.api.model.Secret;
import io.fabric8.kubernetes.api.model.SecretBuilder;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhook;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfiguration;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfigurationBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.server.mock.EnableKubernetesMockClient;
import io.micrometer.prometheusmetrics.PrometheusConfig;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

@EnableKubernetesMockClient(crud = true, https = false)
class CertificateKeeperTest {
    static final String HOST = "aliquot-webhook.aliquot.svc";

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
    void theFirstReconciliationCreatesACertificateAndMakesTheWebhooksTrustIt() {
        CertificateKeeper keeper = keeper();
        assertThat(keeper.waitsFor()).contains("the webhooks' certificate");
        assertThat(keeper.served()).isEmpty();

        keeper.reconcile();

        assertThat(keeper.waitsFor()).isEmpty();
        assertThat(served(keeper)).isEqualTo(stored().certificate());
        assertThat(bundles()).containsExactly("dGhlaXJz", stored().caBundle(), stored().caBundle());
        assertThat(secret().getType()).isEqualTo("kubernetes.io/tls");
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
        List<String> versions = versions();

        keeper.reconcile();
        clock.advance(Duration.ofDays(59));
        keeper.reconcile();

        assertThat(versions()).isEqualTo(versions);
    }

    /** The API server starts to use a new caBundle a moment after it has stored it. */
    @Test
    void servesACertificateThatAnotherReplicaRenewedOnlyAfterTheNextReconciliation() {
        CertificateKeeper one = keeper();
        CertificateKeeper other = keeper();
        one.reconcile();
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
    void restoresAChangedCaBundle() {
        CertificateKeeper keeper = keeper();
        keeper.reconcile();
        kubernetes.resource(configuration()).update();

        keeper.reconcile();

        assertThat(bundles()).containsExactly("dGhlaXJz", stored().caBundle(), stored().caBundle());
        assertThat(keeper.waitsFor()).isEmpty();
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
        assertThat(keeper.waitsFor()).isEmpty();
    }

    @Test
    void servesTheOldCertificateUntilTheNewOneIsTrustedAndTrustsTheOldOneForAnHour() {
        CertificateKeeper keeper = keeper();
        keeper.reconcile();
        X509Certificate old = served(keeper);
        clock.advance(Duration.ofDays(60));

        keeper.reconcile();

        assertThat(served(keeper)).isEqualTo(old);
        ServingCertificate renewed = stored();
        assertThat(renewed.certificate()).isNotEqualTo(old);
        assertThat(renewed.trusted()).containsExactly(renewed.certificate(), old);
        assertThat(bundles()).containsExactly("dGhlaXJz", renewed.caBundle(), renewed.caBundle());

        keeper.reconcile();
        assertThat(served(keeper)).isEqualTo(renewed.certificate());
        assertThat(stored()).isEqualTo(renewed);

        clock.advance(Duration.ofHours(1));
        keeper.reconcile();
        assertThat(stored().trusted()).containsExactly(renewed.certificate());
        assertThat(bundles()).contains(stored().caBundle());
        assertThat(served(keeper)).isEqualTo(renewed.certificate());
    }

    @Test
    void renewsTheCertificateWhenAServiceIsAdded() {
        keeper().reconcile();
        X509Certificate old = stored().certificate();
        var upgraded = new CertificateKeeper(
                kubernetes, settings("aliquot-extension-api"), clock, new TlsCertificate(), new AgentTls());

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
        X509Certificate old = served(keeper);
        kubernetes.resource(secret()).delete();

        keeper.reconcile();
        keeper.reconcile();

        assertThat(served(keeper)).isEqualTo(stored().certificate()).isNotEqualTo(old);
    }

    @Test
    void theMetricIsTheEndOfTheServedCertificate() {
        var metrics = new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);
        CertificateKeeper keeper = new CertificateConfiguration()
                .certificateKeeper(kubernetes, settings(""), clock, new TlsCertificate(), new AgentTls(), metrics);
        assertThat(metrics.scrape()).contains("aliquot_certificate_expiry_timestamp_seconds NaN");

        keeper.reconcile();

        assertThat(metrics.get("aliquot.certificate.expiry.timestamp").gauge().value())
                .isEqualTo((double) served(keeper).getNotAfter().toInstant().getEpochSecond());
    }

    private CertificateKeeper keeper() {
        return new CertificateKeeper(kubernetes, settings(""), clock, new TlsCertificate(), new AgentTls());
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

    private Secret secret() {
        return kubernetes
                .secrets()
                .inNamespace("aliquot")
                .withName("aliquot-webhook-tls")
                .get();
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
                webhookConfiguration().getMetadata().getResourceVersion());
    }
}
