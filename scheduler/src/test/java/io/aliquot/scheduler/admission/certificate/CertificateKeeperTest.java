package io.aliquot.scheduler.admission.certificate;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.scheduler.server.CertificateSource.Identity;
import io.fabric8.kubernetes.api.model.Secret;
import io.fabric8.kubernetes.api.model.SecretBuilder;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhook;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfiguration;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfigurationBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.server.mock.EnableKubernetesMockClient;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

@EnableKubernetesMockClient(crud = true)
class CertificateKeeperTest {
    static final CertificateKeeper.Names NAMES =
            new CertificateKeeper.Names("aliquot", List.of("aliquot-webhook"), "aliquot-webhook-tls", "aliquot");

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
                .withName("somebody.else.io")
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
                .withName("void.aliquot.io")
                .withNewClientConfig()
                .endClientConfig()
                .endWebhook()
                .build();
    }

    @Test
    void theFirstLookMakesACertificateAndHasItTrusted() {
        CertificateKeeper keeper = keeper();
        assertThat(keeper.waitsFor()).contains("the webhooks' certificate");
        assertThat(keeper.current()).isEmpty();

        keeper.look();

        assertThat(keeper.waitsFor()).isEmpty();
        assertThat(shown(keeper)).isEqualTo(kept().certificate());
        assertThat(bundles()).containsExactly("dGhlaXJz", kept().caBundle(), kept().caBundle());
        assertThat(secret().getType()).isEqualTo("kubernetes.io/tls");
    }

    @Test
    void aRestartKeepsTheCertificate() {
        keeper().look();
        ServingCertificate first = kept();
        CertificateKeeper restarted = keeper();

        restarted.look();

        assertThat(shown(restarted)).isEqualTo(first.certificate());
        assertThat(kept()).isEqualTo(first);
    }

    @Test
    void aLookThatFindsAllWellWritesNothing() {
        CertificateKeeper keeper = keeper();
        keeper.look();
        List<String> versions = versions();

        keeper.look();
        clock.advance(Duration.ofDays(59));
        keeper.look();

        assertThat(versions()).isEqualTo(versions);
    }

    /** The API server hears of a new authority a moment after it has stored it. */
    @Test
    void aReplicaThatFindsACertificateRenewedByAnotherShowsItAtTheNextLookOnly() {
        CertificateKeeper one = keeper();
        CertificateKeeper other = keeper();
        one.look();
        other.look();
        ServingCertificate first = kept();
        clock.advance(Duration.ofDays(80));

        one.look();
        other.look();

        assertThat(kept()).isNotEqualTo(first);
        assertThat(shown(one)).isEqualTo(first.certificate());
        assertThat(shown(other)).isEqualTo(first.certificate());
        one.look();
        other.look();
        assertThat(shown(one)).isEqualTo(kept().certificate());
        assertThat(shown(other)).isEqualTo(kept().certificate());
    }

    @Test
    void aBundleThatSomebodyChangedIsPutBack() {
        CertificateKeeper keeper = keeper();
        keeper.look();
        kubernetes.resource(configuration()).update();

        keeper.look();

        assertThat(bundles()).containsExactly("dGhlaXJz", kept().caBundle(), kept().caBundle());
        assertThat(keeper.waitsFor()).isEmpty();
    }

    @Test
    void whileTheBundleCannotBePutRightItIsNotReady() {
        CertificateKeeper keeper = keeper();
        keeper.look();
        kubernetes.resource(configuration()).delete();

        assertThatThrownBy(keeper::look).hasMessageContaining("gpu.aliquot.io");
        assertThat(keeper.waitsFor()).contains("webhook gpu.aliquot.io in MutatingWebhookConfiguration aliquot");

        kubernetes.resource(configuration()).create();
        keeper.look();
        assertThat(keeper.waitsFor()).isEmpty();
    }

    @Test
    void theOldCertificateIsShownUntilTheNewOneIsTrustedAndTrustedForAnHourAfter() {
        CertificateKeeper keeper = keeper();
        keeper.look();
        X509Certificate old = shown(keeper);
        clock.advance(Duration.ofDays(60));

        keeper.look();

        assertThat(shown(keeper)).isEqualTo(old);
        ServingCertificate renewed = kept();
        assertThat(renewed.certificate()).isNotEqualTo(old);
        assertThat(renewed.trusted()).containsExactly(renewed.certificate(), old);
        assertThat(bundles()).containsExactly("dGhlaXJz", renewed.caBundle(), renewed.caBundle());

        keeper.look();
        assertThat(shown(keeper)).isEqualTo(renewed.certificate());
        assertThat(kept()).isEqualTo(renewed);

        clock.advance(Duration.ofHours(1));
        keeper.look();
        assertThat(kept().trusted()).containsExactly(renewed.certificate());
        assertThat(bundles()).contains(kept().caBundle());
        assertThat(shown(keeper)).isEqualTo(renewed.certificate());
    }

    @Test
    void aServiceThatIsNewGetsIntoTheCertificateAsByRenewal() {
        keeper().look();
        X509Certificate old = kept().certificate();
        var names = new CertificateKeeper.Names(
                "aliquot", List.of("aliquot-webhook", "aliquot-api"), "aliquot-webhook-tls", "aliquot");
        var upgraded = new CertificateKeeper(kubernetes, names, clock);

        upgraded.look();
        assertThat(shown(upgraded)).isEqualTo(old);
        assertThat(kept().trusted()).containsExactly(kept().certificate(), old);

        upgraded.look();
        assertThat(shown(upgraded)).isEqualTo(kept().certificate());
        assertThat(kept().dueForRenewal(names.hosts(), clock.instant())).isFalse();

        // A replica of before the upgrade leaves it alone.
        ServingCertificate both = kept();
        keeper().look();
        assertThat(kept()).isEqualTo(both);
    }

    @Test
    void aProgramThatStartsWhenRenewalIsDueShowsTheTrustedCertificateFirst() {
        keeper().look();
        X509Certificate old = kept().certificate();
        clock.advance(Duration.ofDays(75)); // the program was down for a while
        CertificateKeeper keeper = keeper();

        keeper.look();
        assertThat(shown(keeper)).isEqualTo(old).isNotEqualTo(kept().certificate());

        keeper.look();
        assertThat(shown(keeper)).isEqualTo(kept().certificate());
    }

    @Test
    void anotherReplicaAdoptsARenewalWithoutRenewingAgain() {
        CertificateKeeper one = keeper();
        CertificateKeeper two = keeper();
        one.look();
        two.look();
        clock.advance(Duration.ofDays(61));
        one.look();
        ServingCertificate renewed = kept();

        two.look();
        one.look();
        two.look();

        assertThat(kept()).isEqualTo(renewed);
        assertThat(shown(one)).isEqualTo(renewed.certificate());
        assertThat(shown(two)).isEqualTo(renewed.certificate());
    }

    @Test
    void contentThatIsNotOursIsReplacedAndWhatIsShownStaysTrustedMeanwhile() {
        CertificateKeeper keeper = keeper();
        keeper.look();
        X509Certificate old = shown(keeper);
        kubernetes
                .resource(secret().toBuilder()
                        .withData(Map.of("tls.crt", "Zm9yZWlnbg==", "tls.key", "", "mine", "eA=="))
                        .build())
                .update();

        keeper.look();

        assertThat(kept().trusted()).containsExactly(kept().certificate(), old);
        assertThat(secret().getData()).containsOnlyKeys("tls.crt", "tls.key", "ca.crt");
        assertThat(secret().getType()).isEqualTo("kubernetes.io/tls");
        keeper.look();
        assertThat(shown(keeper)).isEqualTo(kept().certificate());
    }

    @Test
    void anEmptySecretIsAdopted() {
        kubernetes
                .resource(new SecretBuilder()
                        .withNewMetadata()
                        .withNamespace("aliquot")
                        .withName("aliquot-webhook-tls")
                        .addToLabels("made-by", "somebody")
                        .endMetadata()
                        .build())
                .create();

        keeper().look();

        assertThat(kept()).isNotNull();
        assertThat(secret().getMetadata().getLabels()).containsEntry("made-by", "somebody");
    }

    @Test
    void anExpiredCertificateIsReplaced() {
        keeper().look();
        ServingCertificate old = kept();
        clock.advance(Duration.ofDays(91)); // the program was down all the while
        CertificateKeeper keeper = keeper();

        keeper.look();

        assertThat(shown(keeper)).isEqualTo(kept().certificate()).isNotEqualTo(old.certificate());
        assertThat(keeper.waitsFor()).isEmpty();
    }

    @Test
    void aDeletedSecretIsMadeAnew() {
        CertificateKeeper keeper = keeper();
        keeper.look();
        X509Certificate old = shown(keeper);
        kubernetes.resource(secret()).delete();

        keeper.look();
        keeper.look();

        assertThat(shown(keeper)).isEqualTo(kept().certificate()).isNotEqualTo(old);
    }

    private CertificateKeeper keeper() {
        return new CertificateKeeper(kubernetes, NAMES, clock);
    }

    private static X509Certificate shown(CertificateKeeper keeper) {
        return keeper.current().map(Identity::chain).orElseThrow().get(0);
    }

    private ServingCertificate kept() {
        return ServingCertificate.parse(secret().getData(), NAMES.host(), clock.instant());
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
