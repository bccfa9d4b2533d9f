package io.aliquot.scheduler.certificate;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.nodeagent.AgentTls;
import io.aliquot.scheduler.server.TlsCertificate;
import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.SecretBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.server.mock.EnableKubernetesMockClient;
import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What a replica presents to node agents, and what the agents find in their volume. */
@EnableKubernetesMockClient(crud = true, https = false)
class AgentClientsTest {
    private static final Duration RENEWAL = Duration.ofDays(61);
    /** Longer than a kubelet takes to update a volume. */
    private static final Duration FOLLOWED = Duration.ofMinutes(5);

    @SuppressWarnings("NullAway.Init") // set by the extension
    private KubernetesClient kubernetes;

    private final ManualClock clock = new ManualClock(Instant.parse("2026-03-01T00:00:00Z"));

    private final class Replica {
        final AgentTls tls = new AgentTls();
        final CertificateKeeper keeper;

        Replica(Settings settings) {
            keeper = new CertificateKeeper(kubernetes, settings, clock, new TlsCertificate(), tls);
        }

        void reconcile() {
            keeper.reconcile();
            CertificateKeeperTest.runJob(kubernetes);
        }

        X509Certificate presents() {
            return tls.identity().orElseThrow().certificate();
        }
    }

    @BeforeEach
    void chart() {
        kubernetes.resource(CertificateKeeperTest.configuration()).create();
        kubernetes.resource(chartsConfigMap()).create();
    }

    private static ConfigMap chartsConfigMap() {
        return new ConfigMapBuilder()
                .withNewMetadata()
                .withNamespace("aliquot")
                .withName(AgentClients.NAME)
                .endMetadata()
                .build();
    }

    @Test
    void theFirstReconciliationTellsAgentsTheirClient() {
        Replica replica = replica();
        assertThat(replica.tls.identity()).isEmpty();

        replica.reconcile();

        assertThat(agentsAccept()).containsExactly(replica.presents());
        assertThat(replica.presents()).isEqualTo(schedulers());
    }

    @Test
    void nothingIsWrittenWithoutNeed() {
        Replica one = replica();
        Replica two = replica();
        one.reconcile();
        String version = configMap().getMetadata().getResourceVersion();

        two.reconcile();
        clock.advance(Duration.ofDays(59));
        one.reconcile();

        assertThat(two.presents()).isEqualTo(one.presents());
        assertThat(configMap().getMetadata().getResourceVersion()).isEqualTo(version);
    }

    @Test
    void aRenewedClientCertificateIsPresentedOnlyWhenEveryKubeletHasUpdatedTheAgentsVolume() {
        Replica one = replica();
        Replica two = replica();
        one.reconcile();
        two.reconcile();
        X509Certificate old = schedulers();
        clock.advance(RENEWAL);

        one.reconcile();
        two.reconcile();

        X509Certificate renewed = schedulers();
        assertThat(agentsAccept()).containsExactlyInAnyOrder(old, renewed);
        clock.advance(FOLLOWED.minusSeconds(1));
        one.reconcile();
        two.reconcile();
        assertThat(one.keeper.served().orElseThrow().certificate()).isEqualTo(renewed);
        assertThat(List.of(one.presents(), two.presents())).containsExactly(old, old);
        clock.advance(Duration.ofSeconds(1));
        one.reconcile();
        two.reconcile();
        assertThat(List.of(one.presents(), two.presents())).containsExactly(renewed, renewed);
        assertThat(agentsAccept()).contains(old);
        clock.advance(Duration.ofHours(1));
        one.reconcile();
        assertThat(agentsAccept()).containsExactly(renewed);
    }

    @Test
    void aReplicaThatStartsWhenRenewalIsDuePresentsTheCertificateThatAgentsAccept() {
        replica().reconcile();
        X509Certificate old = schedulers();
        clock.advance(Duration.ofDays(75)); // the program did not run
        Replica replica = replica();

        replica.reconcile();

        assertThat(schedulers()).isNotEqualTo(old);
        assertThat(replica.presents()).isEqualTo(old);
    }

    /** Before this version the certificate was for servers only. */
    @Test
    void aCertificateThatIsNotForClientsIsRenewed() throws Exception {
        var forServers = ServingCertificate.create(
                null,
                "aliquot-webhook",
                List.of(CertificateKeeperTest.HOST),
                ServingCertificateTest.SERVER,
                clock.instant(),
                List.of());
        kubernetes
                .resource(new SecretBuilder()
                        .withNewMetadata()
                        .withNamespace("aliquot")
                        .withName("aliquot-webhook-tls")
                        .endMetadata()
                        .withData(forServers.print())
                        .build())
                .create();
        Replica replica = replica();

        replica.reconcile();
        replica.reconcile();

        assertThat(schedulers().getExtendedKeyUsage()).contains("1.3.6.1.5.5.7.3.2");
        assertThat(agentsAccept()).containsExactly(schedulers(), forServers.certificate());
        assertThat(replica.keeper.served().orElseThrow().certificate()).isEqualTo(forServers.certificate());
        assertThat(replica.presents()).isEqualTo(forServers.certificate());
    }

    @Test
    void theWebhooksDoNotDependOnTheApiService() {
        Replica replica = new Replica(CertificateKeeperTest.settings("aliquot-group"));

        replica.reconcile();
        replica.reconcile();

        assertThat(replica.keeper.waitsFor()).isEmpty();
        assertThat(agentsAccept()).containsExactly(replica.presents());
    }

    @Test
    void repairsTheConfigMapAndTheWebhooksDoNotDependOnIt() {
        kubernetes.resource(configMap()).delete();
        Replica replica = replica();
        replica.reconcile();
        replica.reconcile();
        assertThat(replica.keeper.waitsFor()).isEmpty();
        assertThat(replica.tls.identity()).isEmpty();

        kubernetes.resource(chartsConfigMap()).create();
        replica.reconcile();
        assertThat(agentsAccept()).containsExactly(replica.presents());

        kubernetes
                .resource(configMap().toBuilder()
                        .withData(Map.of("clients.crt", "none", "mine", "x"))
                        .build())
                .update();
        replica.reconcile();
        assertThat(agentsAccept()).containsExactly(replica.presents());
        assertThat(configMap().getData()).containsOnlyKeys("clients.crt");
    }

    private Replica replica() {
        return new Replica(CertificateKeeperTest.settings(""));
    }

    private ConfigMap configMap() {
        return kubernetes
                .configMaps()
                .inNamespace("aliquot")
                .withName(AgentClients.NAME)
                .get();
    }

    private List<X509Certificate> agentsAccept() {
        try {
            byte[] pem = configMap().getData().getOrDefault("clients.crt", "").getBytes(StandardCharsets.US_ASCII);
            return CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(pem)).stream()
                    .map(X509Certificate.class::cast)
                    .toList();
        } catch (CertificateException e) {
            throw new AssertionError(e);
        }
    }

    private X509Certificate schedulers() {
        return storedForWebhooks().certificate();
    }

    private ServingCertificate storedForWebhooks() {
        return ServingCertificate.parse(
                kubernetes
                        .secrets()
                        .inNamespace("aliquot")
                        .withName("aliquot-webhook-tls")
                        .get()
                        .getData(),
                CertificateKeeperTest.HOST,
                clock.instant());
    }
}
