package io.aliquot.scheduler.admission.certificate;

import io.fabric8.kubernetes.client.KubernetesClient;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import org.springframework.context.support.GenericApplicationContext;

/** A certificate keeper whose clock the test moves, for tests of other packages. */
public final class CertificateKeeperFixture {
    private final ManualClock clock = new ManualClock(Instant.now());
    private final CertificateKeeper keeper;

    /** Creates the keeper and the MutatingWebhookConfiguration that it keeps. */
    public CertificateKeeperFixture(KubernetesClient kubernetes) {
        kubernetes.resource(CertificateKeeperTest.configuration()).create();
        keeper = new CertificateKeeper(kubernetes, CertificateKeeperTest.NAMES, clock);
    }

    /** The name by which the API server calls the webhooks. */
    public static String host() {
        return CertificateKeeperTest.NAMES.host();
    }

    public void registerIn(GenericApplicationContext context) {
        context.registerBean("keeper", CertificateKeeper.class, () -> keeper);
    }

    public void look() {
        keeper.look();
    }

    public void advance(Duration by) {
        clock.advance(by);
    }

    /** A certificate that the webhooks do not serve. */
    public X509Certificate otherCertificate() {
        return ServingCertificate.create(List.of("x"), clock.instant(), Optional.empty())
                .certificate();
    }
}
