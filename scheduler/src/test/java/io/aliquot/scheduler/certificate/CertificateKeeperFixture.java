package io.aliquot.scheduler.certificate;

import io.aliquot.scheduler.nodeagent.AgentTls;
import io.aliquot.scheduler.server.TlsCertificate;
import io.fabric8.kubernetes.client.KubernetesClient;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import org.springframework.context.support.GenericApplicationContext;

/** A certificate keeper with a manual clock, for tests of other packages. */
public final class CertificateKeeperFixture {
    private final ManualClock clock = new ManualClock(Instant.now());
    private final TlsCertificate ports = new TlsCertificate();
    private final CertificateKeeper keeper;

    /** Creates the keeper and its MutatingWebhookConfiguration. */
    public CertificateKeeperFixture(KubernetesClient kubernetes) {
        kubernetes.resource(CertificateKeeperTest.configuration()).create();
        keeper = new CertificateKeeper(kubernetes, CertificateKeeperTest.settings(""), clock, ports, new AgentTls());
    }

    /** The name by which the API server calls the webhooks. */
    public static String host() {
        return CertificateKeeperTest.HOST;
    }

    public void registerIn(GenericApplicationContext context) {
        context.registerBean("keeper", CertificateKeeper.class, () -> keeper);
        context.registerBean(TlsCertificate.class, () -> ports, definition -> definition.setPrimary(true));
    }

    public void reconcile() {
        keeper.reconcile();
    }

    public void advance(Duration by) {
        clock.advance(by);
    }

    /** A certificate that the webhooks do not serve. */
    public X509Certificate otherCertificate() {
        return ServingCertificate.create(List.of("x"), clock.instant(), List.of())
                .certificate();
    }
}
