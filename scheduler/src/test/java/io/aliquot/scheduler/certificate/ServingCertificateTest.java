package io.aliquot.scheduler.certificate;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.bouncycastle.asn1.x509.ExtendedKeyUsage;
import org.bouncycastle.asn1.x509.KeyPurposeId;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

class ServingCertificateTest {
    static final ExtendedKeyUsage SERVER = new ExtendedKeyUsage(KeyPurposeId.id_kp_serverAuth);
    private static final String HOST = "aliquot-webhook.aliquot.svc";
    private static final Instant NOW = Instant.parse("2026-03-01T00:00:00Z");
    private static final ServingCertificate AUTHORITY = ServingCertificate.createAuthority(NOW, List.of());
    private static final ServingCertificate CERTIFICATE =
            ServingCertificate.create(AUTHORITY, List.of(HOST), NOW, List.of());

    @Test
    void parsesWhatItPrints() {
        assertThat(ServingCertificate.parse(CERTIFICATE.print(), HOST, NOW)).isEqualTo(CERTIFICATE);
        assertThat(CERTIFICATE.print().get("ca.crt")).isEqualTo(CERTIFICATE.caBundle());
    }

    @Test
    void isValidForItsHostForNinetyDaysAndIsNotACertificateAuthority() throws Exception {
        var certificate = CERTIFICATE.certificate();

        assertThat(certificate.getSubjectAlternativeNames()).hasToString("[[2, " + HOST + "]]");
        assertThat(certificate.getBasicConstraints()).isEqualTo(-1);
        assertThat(certificate.getExtendedKeyUsage())
                .containsExactly("1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"); // serverAuth, clientAuth
        assertThat(certificate.getPublicKey().getAlgorithm()).isEqualTo("EC");
        assertThat(CERTIFICATE.expires()).isEqualTo(NOW.plus(Duration.ofDays(90)));
        certificate.verify(AUTHORITY.certificate().getPublicKey());
        assertThat(certificate.getIssuerX500Principal())
                .isEqualTo(AUTHORITY.certificate().getSubjectX500Principal());
    }

    @Test
    void theAuthorityOutlivesWhatItIssuesAndIssuesNoOtherAuthority() {
        var certificate = AUTHORITY.certificate();

        assertThat(AUTHORITY.expires()).isAfter(NOW.plus(Duration.ofDays(3650)));
        assertThat(certificate.getBasicConstraints()).isEqualTo(0);
        assertThat(certificate.getKeyUsage())
                .containsExactly(false, false, false, false, false, true, false, false, false);
        assertThat(ServingCertificate.parse(AUTHORITY.print(), ServingCertificate.AUTHORITY, NOW))
                .isEqualTo(AUTHORITY);
    }

    @Test
    void aCaBundleTrustsItsCertificatesAndWhatItsAuthoritiesHaveIssued() {
        ServingCertificate other = ServingCertificate.createAuthority(NOW, List.of(AUTHORITY.certificate()));
        ServingCertificate selfSigned = ServingCertificate.create(null, "x", List.of("x"), SERVER, NOW, List.of());

        assertThat(ServingCertificate.trusts(AUTHORITY.caBundle(), CERTIFICATE.certificate()))
                .isTrue();
        assertThat(ServingCertificate.trusts(other.caBundle(), CERTIFICATE.certificate()))
                .isTrue();
        assertThat(ServingCertificate.trusts(selfSigned.caBundle(), selfSigned.certificate()))
                .isTrue();
        for (String bundle : List.of("", "bm9uZQ==", "%", selfSigned.caBundle(), CERTIFICATE.caBundle())) {
            assertThat(ServingCertificate.trusts(bundle, AUTHORITY.certificate()))
                    .as(bundle)
                    .isFalse();
        }
        assertThat(ServingCertificate.trusts(AUTHORITY.caBundle(), other.certificate()))
                .isFalse();
    }

    @Test
    void supportsAHostLongerThanACommonName() {
        String host = "a".repeat(63) + "." + "b".repeat(63) + ".svc";

        ServingCertificate created = ServingCertificate.create(AUTHORITY, List.of(host), NOW, List.of());

        assertThat(ServingCertificate.parse(created.print(), host, NOW)).isEqualTo(created);
    }

    @Test
    void isDueForRenewalAfterTwoThirdsOfItsValidity() {
        assertThat(CERTIFICATE.dueForRenewal(
                        List.of(HOST), NOW.plus(Duration.ofDays(60)).minusSeconds(1)))
                .isFalse();
        assertThat(CERTIFICATE.dueForRenewal(List.of(HOST), NOW.plus(Duration.ofDays(60))))
                .isTrue();
    }

    @Test
    void trustsThePredecessorForAnHour() {
        ServingCertificate next =
                ServingCertificate.create(AUTHORITY, List.of(HOST), NOW, List.of(CERTIFICATE.certificate()));

        assertThat(next.trusted()).containsExactly(next.certificate(), CERTIFICATE.certificate());
        assertThat(next.withoutOldPredecessor(NOW.plusSeconds(3599))).isEqualTo(next);
        assertThat(next.withoutOldPredecessor(NOW.plusSeconds(3600)).trusted()).containsExactly(next.certificate());
        assertThat(ServingCertificate.parse(next.print(), HOST, NOW)).isEqualTo(next);
    }

    @Test
    void rejectsForeignContentAndSaysWhatIsWrong() {
        ServingCertificate other = ServingCertificate.create(AUTHORITY, List.of(HOST), NOW, List.of());

        assertBad(Map.of(), "tls.crt is missing");
        assertBad(with("tls.key", null), "tls.key is missing");
        assertBad(with("ca.crt", null), "ca.crt is missing");
        assertBad(with("tls.crt", "%%%"), "tls.crt is not base64");
        assertBad(with("tls.crt", ""), "tls.crt contains no valid certificate");
        assertBad(with("tls.crt", encoded("hello")), "tls.crt contains no valid certificate");
        assertBad(with("tls.key", encoded("hello")), "tls.key is not a valid private key");
        assertBad(
                with("tls.key", encoded("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")),
                "tls.key is not a valid private key");
        assertBad(with("tls.key", other.print().getOrDefault("tls.key", "")), "tls.key is not the key of tls.crt");
        assertBad(with("ca.crt", other.caBundle()), "ca.crt lacks the certificate");
    }

    @Test
    void rejectsACertificateForAnotherHostOrTime() {
        assertThatThrownBy(() -> ServingCertificate.parse(CERTIFICATE.print(), "elsewhere.aliquot.svc", NOW))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining("not for elsewhere");
        for (Instant wrong : List.of(NOW.minus(Duration.ofHours(1)), NOW.plus(Duration.ofDays(90)))) {
            assertThatThrownBy(() -> ServingCertificate.parse(CERTIFICATE.print(), HOST, wrong))
                    .isInstanceOf(FormatException.class)
                    .hasMessageContaining("is valid from 2026-02-28T23:55:00Z");
        }
    }

    @Test
    void toStringOmitsTheKey() {
        assertThat(CERTIFICATE.toString()).matches("ServingCertificate\\[[0-9a-f]+ until 2026-05-30T00:00:00Z]");
    }

    private static Map<String, String> with(String field, @Nullable String value) {
        var data = new TreeMap<>(CERTIFICATE.print());
        if (value == null) {
            data.remove(field);
        } else {
            data.put(field, value);
        }
        return data;
    }

    private static void assertBad(Map<String, String> data, String message) {
        assertThatThrownBy(() -> ServingCertificate.parse(data, HOST, NOW))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining(message);
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
