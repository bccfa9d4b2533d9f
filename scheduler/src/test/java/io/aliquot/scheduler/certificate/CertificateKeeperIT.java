package io.aliquot.scheduler.certificate;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.nodeagent.AgentTls;
import io.aliquot.scheduler.server.ports.TlsCertificate;
import io.aliquot.scheduler.settings.Settings;
import io.aliquot.testing.ApiServer;
import io.fabric8.kubernetes.api.model.APIServiceBuilder;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfiguration;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfigurationBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Three replicas keep one certificate and race on a real API server, whose webhooks the Job's program configures. */
class CertificateKeeperIT {
    private static final Settings SETTINGS = CertificateKeeperTest.settings("");
    private static final int ROUNDS = 10;
    private static final String API_SERVICE = "v1alpha1.gpu.aliquot.io";

    @Test
    void racingReplicasAgreeOnOneCertificateThatTheWebhooksTrust(@TempDir Path folder) throws Exception {
        try (var server = new ApiServer(folder);
                KubernetesClient client = new KubernetesClientBuilder()
                        .withConfig(server.client().build())
                        .build()) {
            client.resource(new NamespaceBuilder()
                            .withNewMetadata()
                            .withName(SETTINGS.namespace())
                            .endMetadata()
                            .build())
                    .create();
            client.resource(configuration("gpu.aliquot.io")).create();
            var clock = new ManualClock(Instant.parse("2026-03-01T00:00:00Z"));
            List<CertificateKeeper> keepers = Stream.generate(() -> new CertificateKeeper(
                            client, SETTINGS, clock, new TlsCertificate(), accepted -> {}, new AgentTls()))
                    .limit(3)
                    .toList();
            String bundle = "";
            for (int round = 0; round < ROUNDS; round++) {
                race(keepers); // creates or renews the certificate
                if (round == 0) {
                    Map<String, String> data = client.secrets()
                            .inNamespace(SETTINGS.namespace())
                            .withName(CertificateKeeper.AUTHORITY_SECRET)
                            .get()
                            .getData();
                    Path file = Files.write(
                            folder.resolve("ca.crt"), Base64.getDecoder().decode(data.getOrDefault("ca.crt", "")));
                    bundle = data.getOrDefault("ca.crt", "");
                    runJobBeforeTheWebhooksAreComplete(server, client, file);
                }
                race(keepers);
                race(keepers);

                String expected = bundle;
                ServingCertificate stored = ServingCertificate.parse(
                        client.secrets()
                                .inNamespace(SETTINGS.namespace())
                                .withName(CertificateKeeper.SECRET)
                                .get()
                                .getData(),
                        CertificateKeeperTest.HOST,
                        clock.instant());
                assertThat(keepers).allSatisfy(keeper -> {
                    assertThat(keeper.waitsFor()).isEmpty();
                    assertThat(keeper.served().orElseThrow().certificate()).isEqualTo(stored.certificate());
                });
                assertThat(client.admissionRegistration()
                                .v1()
                                .mutatingWebhookConfigurations()
                                .withName(CertificateKeeper.CONFIGURATION)
                                .get()
                                .getWebhooks())
                        .hasSize(2)
                        .allMatch(webhook ->
                                expected.equals(webhook.getClientConfig().getCaBundle()));
                assertThat(ServingCertificate.trusts(expected, stored.certificate()))
                        .isTrue();
                clock.advance(Duration.ofDays(80));
            }
        }
    }

    private static void race(List<CertificateKeeper> keepers) throws Exception {
        var start = new CyclicBarrier(keepers.size());
        var threads = Executors.newFixedThreadPool(keepers.size());
        try {
            var reconciliations = keepers.stream()
                    .map(keeper -> threads.submit(() -> {
                        start.await();
                        keeper.reconcile();
                        return true;
                    }))
                    .toList();
            for (var reconciliation : reconciliations) {
                assertThat(reconciliation.get(60, TimeUnit.SECONDS)).isTrue();
            }
        } finally {
            threads.shutdownNow();
        }
    }

    /** Helm upgrades the configuration and creates an APIService after the Job. */
    private static void runJobBeforeTheWebhooksAreComplete(ApiServer server, KubernetesClient client, Path file)
            throws Exception {
        var thread = Executors.newSingleThreadExecutor();
        try {
            var job = thread.submit(() -> {
                CaBundles.write(
                        server.client().build(),
                        List.of(file.toString(), "aliquot", "gpu.aliquot.io,void.aliquot.io", API_SERVICE));
                return true;
            });
            TimeUnit.MILLISECONDS.sleep(300); // the first attempt is refused
            assertThat(job.isDone()).isFalse();
            client.resource(configuration("gpu.aliquot.io", "void.aliquot.io")).update();
            client.resource(new APIServiceBuilder()
                            .withNewMetadata()
                            .withName(API_SERVICE)
                            .endMetadata()
                            .withNewSpec()
                            .withGroup("gpu.aliquot.io")
                            .withVersion("v1alpha1")
                            .withGroupPriorityMinimum(100)
                            .withVersionPriority(10)
                            .withNewService()
                            .withNamespace(SETTINGS.namespace())
                            .withName("aliquot-extension-api")
                            .endService()
                            .endSpec()
                            .build())
                    .create();
            assertThat(job.get(30, TimeUnit.SECONDS)).isTrue();
            assertThat(client.apiServices()
                            .withName(API_SERVICE)
                            .get()
                            .getSpec()
                            .getCaBundle())
                    .isEqualTo(Base64.getEncoder().encodeToString(Files.readAllBytes(file)));
        } finally {
            thread.shutdownNow();
        }
    }

    private static MutatingWebhookConfiguration configuration(String... names) {
        var builder = new MutatingWebhookConfigurationBuilder()
                .withNewMetadata()
                .withName(CertificateKeeper.CONFIGURATION)
                .endMetadata();
        for (String name : names) {
            builder.addNewWebhook()
                    .withName(name)
                    .withAdmissionReviewVersions("v1")
                    .withSideEffects("None")
                    .withNewClientConfig()
                    .withNewService()
                    .withNamespace(SETTINGS.namespace())
                    .withName(CertificateKeeper.SERVICE)
                    .endService()
                    .endClientConfig()
                    .endWebhook();
        }
        return builder.build();
    }
}
