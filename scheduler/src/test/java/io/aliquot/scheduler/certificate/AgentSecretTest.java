package io.aliquot.scheduler.certificate;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.nodeagent.AgentTls;
import io.aliquot.scheduler.nodeagent.AgentTls.Identity;
import io.aliquot.scheduler.server.TlsCertificate;
import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.api.model.APIServiceBuilder;
import io.fabric8.kubernetes.api.model.Secret;
import io.fabric8.kubernetes.api.model.SecretBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.server.mock.EnableKubernetesMockClient;
import java.io.ByteArrayInputStream;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What a replica presents to node agents and accepts of them, and what the agents find in their volume. */
@EnableKubernetesMockClient(crud = true, https = false)
class AgentSecretTest {
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
        }

        X509Certificate presents() {
            return known().certificate();
        }

        Set<X509Certificate> accepts() {
            return known().agents();
        }

        private Identity.Known known() {
            return (Identity.Known) tls.identity();
        }
    }

    @BeforeEach
    void webhooks() {
        kubernetes.resource(CertificateKeeperTest.configuration()).create();
    }

    @Test
    void theFirstReconciliationCreatesTheAgentsCertificateAndTellsThemTheirClient() {
        Replica replica = replica();
        assertThat(replica.tls.identity()).isInstanceOf(Identity.None.class);

        replica.reconcile();

        assertThat(secret().getType()).isEqualTo("kubernetes.io/tls");
        assertThat(replica.accepts()).containsExactly(agents());
        assertThat(agentsAccept()).containsExactly(replica.presents());
        assertThat(replica.presents()).isEqualTo(schedulers());
    }

    @Test
    void otherReplicasAdoptTheCertificateAndNothingIsWrittenWithoutNeed() {
        Replica one = replica();
        Replica two = replica();
        one.reconcile();
        String version = secret().getMetadata().getResourceVersion();

        two.reconcile();
        clock.advance(Duration.ofDays(59));
        one.reconcile();

        assertThat(two.accepts()).isEqualTo(one.accepts());
        assertThat(two.presents()).isEqualTo(one.presents());
        assertThat(secret().getMetadata().getResourceVersion()).isEqualTo(version);
    }

    /** Agents use a new certificate as soon as their kubelet finds it; each replica must accept it before. */
    @Test
    void everyReplicaAcceptsTheAgentsNextCertificateBeforeTheyGetIt() {
        Replica one = replica();
        Replica two = replica();
        one.reconcile();
        two.reconcile();
        X509Certificate old = agents();
        clock.advance(RENEWAL);

        one.reconcile();
        two.reconcile();

        assertThat(agents()).isEqualTo(old);
        assertThat(one.accepts()).hasSize(2).contains(old).isEqualTo(two.accepts());
        clock.advance(Duration.ofSeconds(59));
        one.reconcile();
        assertThat(agents()).isEqualTo(old);
        clock.advance(Duration.ofSeconds(1));
        one.reconcile();
        X509Certificate renewed = agents();
        assertThat(renewed).isNotEqualTo(old);
        assertThat(secret().getData()).doesNotContainKeys("next.crt", "next.key");
        assertThat(two.accepts()).containsExactlyInAnyOrder(old, renewed);

        Replica restarted = replica();
        restarted.reconcile();
        assertThat(restarted.accepts()).containsExactlyInAnyOrder(old, renewed);
        clock.advance(Duration.ofHours(1));
        two.reconcile();
        assertThat(two.accepts()).containsExactly(renewed);
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
                "aliquot-webhook",
                List.of(CertificateKeeperTest.HOST),
                ServingCertificate.SERVER,
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

        assertThat(schedulers().getExtendedKeyUsage()).contains("1.3.6.1.5.5.7.3.2");
        assertThat(agentsAccept()).containsExactly(schedulers(), forServers.certificate());
        assertThat(replica.keeper.served().orElseThrow().certificate()).isEqualTo(forServers.certificate());
        assertThat(replica.presents()).isEqualTo(forServers.certificate());
    }

    @Test
    void replacesForeignContentAndAcceptsWhatTheAgentsStillServe() {
        Replica replica = replica();
        replica.reconcile();
        X509Certificate old = agents();
        kubernetes
                .resource(secret().toBuilder()
                        .withData(Map.of("tls.crt", "Zm9yZWlnbg==", "tls.key", "", "mine", "eA=="))
                        .build())
                .update();

        replica.reconcile();

        assertThat(replica.accepts()).containsExactlyInAnyOrder(agents(), old);
        assertThat(secret().getData()).containsOnlyKeys("tls.crt", "tls.key", "ca.crt", "agents.crt");
    }

    @Test
    void recreatesADeletedSecretAndRepairsTheListOfClients() {
        Replica replica = replica();
        replica.reconcile();
        kubernetes.resource(secret()).delete();
        replica.reconcile();
        assertThat(replica.accepts()).contains(agents());

        Map<String, String> data = new TreeMap<>(secret().getData());
        data.put("ca.crt", "bm9uZQ==");
        kubernetes.resource(secret().toBuilder().withData(data).build()).update();
        replica.reconcile();

        assertThat(agentsAccept()).containsExactly(replica.presents());
    }

    @Test
    void aDamagedAnnouncementIsMadeAgain() {
        Replica replica = replica();
        replica.reconcile();
        clock.advance(RENEWAL);
        replica.reconcile();
        X509Certificate old = agents();
        Map<String, String> data = new TreeMap<>(secret().getData());
        data.put("next.key", "bm9uZQ==");
        kubernetes.resource(secret().toBuilder().withData(data).build()).update();

        clock.advance(Duration.ofMinutes(2));
        replica.reconcile();
        assertThat(agents()).isEqualTo(old);
        clock.advance(Duration.ofMinutes(1));
        replica.reconcile();

        assertThat(agents()).isNotEqualTo(old);
    }

    @Test
    void theApiServiceTrustsTheCertificateBeforeItIsServed() {
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
        Replica replica = new Replica(CertificateKeeperTest.settings("aliquot-group"));
        replica.reconcile();
        assertThat(groupTrusts()).isEqualTo(storedForWebhooks().caBundle());
        X509Certificate old = schedulers();
        clock.advance(RENEWAL);

        replica.reconcile();

        assertThat(groupTrusts()).isEqualTo(storedForWebhooks().caBundle());
        assertThat(storedForWebhooks().trusted()).contains(old).hasSize(2);
        assertThat(replica.keeper.served().orElseThrow().certificate()).isEqualTo(old);
        replica.reconcile();
        assertThat(replica.keeper.served().orElseThrow().certificate()).isEqualTo(schedulers());
        assertThat(storedForWebhooks()
                        .dueForRenewal(
                                List.of(CertificateKeeperTest.HOST, "aliquot-group.aliquot.svc"), clock.instant()))
                .isFalse();
    }

    @Test
    void theWebhooksDoNotDependOnTheApiService() {
        Replica replica = new Replica(CertificateKeeperTest.settings("aliquot-group"));

        replica.reconcile();

        assertThat(replica.keeper.waitsFor()).isEmpty();
        assertThat(replica.accepts()).containsExactly(agents());
    }

    private Replica replica() {
        return new Replica(CertificateKeeperTest.settings(""));
    }

    private Secret secret() {
        return kubernetes
                .secrets()
                .inNamespace("aliquot")
                .withName("aliquot-agent-tls")
                .get();
    }

    /** The certificate in the agents' volume. */
    private X509Certificate agents() {
        return certificates("tls.crt").getFirst();
    }

    private List<X509Certificate> agentsAccept() {
        return certificates("ca.crt");
    }

    private List<X509Certificate> certificates(String field) {
        try {
            byte[] pem = Base64.getDecoder().decode(secret().getData().get(field));
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

    private String groupTrusts() {
        return kubernetes
                .apiServices()
                .withName("v1alpha1.gpu.aliquot.io")
                .get()
                .getSpec()
                .getCaBundle();
    }
}
