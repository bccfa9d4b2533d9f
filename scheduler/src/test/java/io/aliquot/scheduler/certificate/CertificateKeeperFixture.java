package io.aliquot.scheduler.certificate;

import io.aliquot.scheduler.nodeagent.AgentTls;
import io.aliquot.scheduler.server.ports.TlsCertificate;
import io.fabric8.kubernetes.client.KubernetesClient;
import java.math.BigInteger;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import org.springframework.context.support.GenericApplicationContext;

/** A certificate keeper with a manual clock, for tests of other packages. */
public final class CertificateKeeperFixture {
    /** It reaches the present when a certificate has been renewed, which a TLS client must find valid. */
    private final ManualClock clock =
            new ManualClock(Instant.now().minus(Duration.ofDays(60)).minus(Duration.ofHours(2)));

    private final TlsCertificate ports = new TlsCertificate();
    private final KubernetesClient kubernetes;
    private final CertificateKeeper keeper;

    /** Creates the keeper and its MutatingWebhookConfiguration. */
    public CertificateKeeperFixture(KubernetesClient kubernetes) {
        this.kubernetes = kubernetes;
        kubernetes.resource(CertificateKeeperTest.configuration()).create();
        keeper = new CertificateKeeper(
                kubernetes, CertificateKeeperTest.settings(""), clock, ports, accepted -> {}, new AgentTls());
    }

    /** The name by which the API server calls the webhooks. */
    public static String host() {
        return CertificateKeeperTest.HOST;
    }

    public void registerIn(GenericApplicationContext context) {
        context.registerBean("keeper", CertificateKeeper.class, () -> keeper);
        context.registerBean(TlsCertificate.class, () -> ports, definition -> definition.setPrimary(true));
    }

    /** Reconciles, and does what the Job that writes the caBundles does. */
    public void reconcile() {
        keeper.reconcile();
        CertificateKeeperTest.runJob(kubernetes);
        keeper.reconcile();
    }

    public void advance(Duration by) {
        clock.advance(by);
    }

    /** Of the certificate that the webhooks serve. */
    public BigInteger serialNumber() {
        return keeper.served().orElseThrow().certificate().getSerialNumber();
    }

    /** A certificate that the webhooks do not serve. */
    public X509Certificate otherCertificate() {
        return ServingCertificate.createAuthority(clock.instant(), List.of()).certificate();
    }
}
