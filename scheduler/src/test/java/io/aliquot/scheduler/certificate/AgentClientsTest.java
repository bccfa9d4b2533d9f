package io.aliquot.scheduler.certificate;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.nodeagent.AgentTls;
import io.aliquot.scheduler.server.ports.TlsCertificate;
import io.aliquot.scheduler.settings.Settings;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.server.mock.EnableKubernetesMockClient;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What a replica presents to node agents, and what it has them told to accept. */
@EnableKubernetesMockClient(crud = true, https = false)
class AgentClientsTest {
    private static final Duration RENEWAL = Duration.ofDays(61);
    /** Longer than it takes to tell the agents of all nodes. */
    private static final Duration FOLLOWED = Duration.ofMinutes(5);

    @SuppressWarnings("NullAway.Init") // set by the extension
    private KubernetesClient kubernetes;

    private final ManualClock clock = new ManualClock(Instant.parse("2026-03-01T00:00:00Z"));

    /** What agents were told last. */
    private List<X509Certificate> accepted = List.of();

    private final class Replica {
        final AgentTls tls = new AgentTls();
        final CertificateKeeper keeper;

        Replica(Settings settings) {
            keeper = new CertificateKeeper(
                    kubernetes, settings, clock, new TlsCertificate(), told -> accepted = told, tls);
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
    }

    @Test
    void theFirstReconciliationTellsAgentsTheirClient() {
        Replica replica = replica();
        assertThat(replica.tls.identity()).isEmpty();

        replica.reconcile();

        assertThat(accepted).containsExactly(replica.presents());
        assertThat(replica.presents()).isEqualTo(schedulers());
    }

    @Test
    void aRenewedClientCertificateIsPresentedOnlyWhenAgentsHaveBeenToldForFiveMinutes() {
        Replica one = replica();
        Replica two = replica();
        one.reconcile();
        two.reconcile();
        X509Certificate old = schedulers();
        clock.advance(RENEWAL);

        one.reconcile();
        two.reconcile();

        X509Certificate renewed = schedulers();
        assertThat(accepted).containsExactlyInAnyOrder(old, renewed);
        clock.advance(FOLLOWED.minusSeconds(1));
        one.reconcile();
        two.reconcile();
        assertThat(one.keeper.served().orElseThrow().certificate()).isEqualTo(renewed);
        assertThat(List.of(one.presents(), two.presents())).containsExactly(old, old);
        clock.advance(Duration.ofSeconds(1));
        one.reconcile();
        two.reconcile();
        assertThat(List.of(one.presents(), two.presents())).containsExactly(renewed, renewed);
        assertThat(accepted).contains(old);
        clock.advance(Duration.ofHours(1));
        one.reconcile();
        assertThat(accepted).containsExactly(renewed);
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

    @Test
    void theWebhooksDoNotDependOnTheApiService() {
        Replica replica = new Replica(CertificateKeeperTest.settings("aliquot-group"));

        replica.reconcile();
        replica.reconcile();

        assertThat(replica.keeper.waitsFor()).isEmpty();
        assertThat(accepted).containsExactly(replica.presents());
    }

    private Replica replica() {
        return new Replica(CertificateKeeperTest.settings(""));
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
