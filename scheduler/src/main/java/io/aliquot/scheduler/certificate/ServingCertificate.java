package io.aliquot.scheduler.certificate;

import io.aliquot.api.format.FormatException;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.PrivateKey;
import java.security.SecureRandom;
import java.security.Signature;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.security.spec.ECGenParameterSpec;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.Collection;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Stream;
import org.bouncycastle.asn1.x500.X500Name;
import org.bouncycastle.asn1.x509.BasicConstraints;
import org.bouncycastle.asn1.x509.ExtendedKeyUsage;
import org.bouncycastle.asn1.x509.Extension;
import org.bouncycastle.asn1.x509.GeneralName;
import org.bouncycastle.asn1.x509.GeneralNames;
import org.bouncycastle.asn1.x509.KeyPurposeId;
import org.bouncycastle.asn1.x509.KeyUsage;
import org.bouncycastle.cert.jcajce.JcaX509CertificateConverter;
import org.bouncycastle.cert.jcajce.JcaX509v3CertificateBuilder;
import org.bouncycastle.openssl.jcajce.JcaPEMWriter;
import org.bouncycastle.operator.OperatorCreationException;
import org.bouncycastle.operator.jcajce.JcaContentSignerBuilder;
import org.bouncycastle.util.io.pem.PemObject;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.ssl.pem.PemContent;

/**
 * A certificate with its key, and the certificates that its peers trust: the content of a Secret. There are two: the
 * scheduler's, which the webhooks serve and which node agents expect of their client; and the authority that issues it,
 * which the API server trusts.
 *
 * <p>The authority outlives the certificates that it issues, so a renewal changes nothing for the API server, and the
 * scheduler needs no right to write a {@code caBundle}. Node agents and replicas trust no authority: they compare
 * certificates.
 *
 * @param key EC P-256
 * @param certificate for the DNS names of the scheduler's Services, valid for 90 days; or the authority's, valid for 10
 *     years
 * @param trusted the certificate and, for an hour or more after a renewal, its predecessors
 */
record ServingCertificate(PrivateKey key, X509Certificate certificate, List<X509Certificate> trusted) {
    static final String CERTIFICATE = "tls.crt";
    static final String KEY = "tls.key";
    static final String TRUSTED = "ca.crt";

    /** The authority's name. Nothing resolves it. */
    static final String AUTHORITY = "aliquot-webhook-ca";

    private static final Duration VALIDITY = Duration.ofDays(90);
    private static final Duration VALIDITY_OF_AUTHORITY = Duration.ofDays(3652);
    /** The API server's clock may be this far behind. */
    private static final Duration MAX_SKEW = Duration.ofMinutes(5);
    /** How long the predecessor stays trusted; replicas serve a new certificate after 10 s. */
    private static final Duration TAKEOVER = Duration.ofHours(1);

    private static final ExtendedKeyUsage SERVER_AND_CLIENT =
            new ExtendedKeyUsage(new KeyPurposeId[] {KeyPurposeId.id_kp_serverAuth, KeyPurposeId.id_kp_clientAuth});

    private static final String ALGORITHM = "SHA256withECDSA";
    private static final int DNS_NAME = 2; // the tag of dNSName (RFC 5280, 4.2.1.6)

    ServingCertificate {
        trusted = List.copyOf(trusted);
    }

    /**
     * Creates a key and a certificate of the scheduler, which is a server to the API server and a client to node agents.
     *
     * @param hosts the DNS names of the webhooks and the API
     * @param predecessors certificates that replicas still serve, to stay trusted
     */
    static ServingCertificate create(
            ServingCertificate authority, List<String> hosts, Instant now, List<X509Certificate> predecessors) {
        return create(authority, "aliquot-webhook", hosts, SERVER_AND_CLIENT, now, predecessors);
    }

    /**
     * Creates the key and the certificate of an authority.
     *
     * @param predecessors what the API server trusts, to stay trusted
     */
    static ServingCertificate createAuthority(Instant now, List<X509Certificate> predecessors) {
        return create(null, AUTHORITY, List.of(AUTHORITY), null, now, predecessors);
    }

    /**
     * Creates a key and a certificate.
     *
     * @param issuer null if it is self-signed
     * @param usage null for an authority
     */
    static ServingCertificate create(
            @Nullable ServingCertificate issuer,
            String commonName,
            List<String> hosts,
            @Nullable ExtendedKeyUsage usage,
            Instant now,
            List<X509Certificate> predecessors) {
        try {
            var random = new SecureRandom();
            KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
            generator.initialize(new ECGenParameterSpec("secp256r1"), random);
            KeyPair pair = generator.generateKeyPair();
            var name = new X500Name("CN=" + commonName);
            var builder = new JcaX509v3CertificateBuilder(
                    issuer == null
                            ? name
                            : X500Name.getInstance(
                                    issuer.certificate.getSubjectX500Principal().getEncoded()),
                    new BigInteger(159, random), // at most 20 octets (RFC 5280, 4.1.2.2)
                    Date.from(now.minus(MAX_SKEW)),
                    Date.from(now.plus(usage == null ? VALIDITY_OF_AUTHORITY : VALIDITY)),
                    name,
                    pair.getPublic());
            if (usage == null) {
                builder.addExtension(Extension.basicConstraints, true, new BasicConstraints(0))
                        .addExtension(Extension.keyUsage, true, new KeyUsage(KeyUsage.keyCertSign));
            } else {
                builder.addExtension(Extension.basicConstraints, true, new BasicConstraints(false))
                        .addExtension(Extension.keyUsage, true, new KeyUsage(KeyUsage.digitalSignature))
                        .addExtension(Extension.extendedKeyUsage, false, usage);
            }
            builder.addExtension(
                    Extension.subjectAlternativeName,
                    false,
                    new GeneralNames(hosts.stream()
                            .map(host -> new GeneralName(GeneralName.dNSName, host))
                            .toArray(GeneralName[]::new)));
            X509Certificate certificate = new JcaX509CertificateConverter()
                    .getCertificate(builder.build(new JcaContentSignerBuilder(ALGORITHM)
                            .build(issuer == null ? pair.getPrivate() : issuer.key)));
            return new ServingCertificate(
                    pair.getPrivate(),
                    certificate,
                    Stream.concat(Stream.of(certificate), predecessors.stream()).toList());
        } catch (GeneralSecurityException | OperatorCreationException | IOException e) {
            throw new IllegalStateException("cannot create an EC certificate", e);
        }
    }

    /**
     * Reads the content of the scheduler's Secret.
     *
     * @param data field to content in base64, as in the API
     * @param host the DNS name that the certificate must be for
     * @throws FormatException if the content is invalid, for another host or not valid at {@code now}
     */
    static ServingCertificate parse(Map<String, String> data, String host, Instant now) {
        List<X509Certificate> chain = certificates(CERTIFICATE, text(data, CERTIFICATE));
        X509Certificate certificate = chain.get(0);
        PrivateKey key = key(text(data, KEY));
        List<X509Certificate> trusted = certificates(TRUSTED, text(data, TRUSTED));
        if (!signs(key, certificate)) {
            throw new FormatException(KEY + " is not the key of " + CERTIFICATE);
        }
        if (!hosts(certificate).contains(host)) {
            throw new FormatException(CERTIFICATE + " is for " + hosts(certificate) + ", not for " + host);
        }
        if (now.isBefore(certificate.getNotBefore().toInstant())
                || !now.isBefore(certificate.getNotAfter().toInstant())) {
            throw new FormatException(CERTIFICATE + " is valid from "
                    + certificate.getNotBefore().toInstant() + " to "
                    + certificate.getNotAfter().toInstant() + " only");
        }
        if (!trusted.contains(certificate)) {
            throw new FormatException(TRUSTED + " lacks the certificate in " + CERTIFICATE);
        }
        return new ServingCertificate(key, certificate, trusted);
    }

    /** The content of the scheduler's Secret: field to content in base64. */
    Map<String, String> print() {
        var data = new LinkedHashMap<String, String>();
        data.put(CERTIFICATE, base64(pem(List.of(certificate))));
        data.put(KEY, base64(pem(List.of(new PemObject("PRIVATE KEY", key.getEncoded())))));
        data.put(TRUSTED, caBundle());
        return data;
    }

    /** The trusted certificates as a webhook's {@code clientConfig.caBundle}: PEM in base64. */
    String caBundle() {
        return base64(pem(trusted));
    }

    /** Whether two thirds of its validity are over, or a Service has been added. */
    boolean dueForRenewal(List<String> hosts, Instant now) {
        Duration renewal =
                Duration.between(created(), expires()).multipliedBy(2).dividedBy(3);
        return !now.isBefore(created().plus(renewal)) || !hosts(certificate).containsAll(hosts);
    }

    /** Whether this authority issued {@code other}. */
    boolean issued(X509Certificate other) {
        return isIssuer(certificate, other);
    }

    /**
     * Whether a client that trusts a {@code clientConfig.caBundle} accepts a certificate: it is among the bundle's, or
     * issued by one of them. Go accepts a leaf that is among the roots (crypto/x509, Verify).
     */
    static boolean trusts(String caBundle, X509Certificate certificate) {
        return bundled(caBundle).stream().anyMatch(one -> one.equals(certificate) || isIssuer(one, certificate));
    }

    /** The certificates of a {@code clientConfig.caBundle}; none if it is not readable. */
    static List<X509Certificate> bundled(String caBundle) {
        try {
            return certificates(TRUSTED, text(Map.of(TRUSTED, caBundle), TRUSTED));
        } catch (FormatException e) {
            return List.of();
        }
    }

    private static boolean isIssuer(X509Certificate issuer, X509Certificate certificate) {
        try {
            certificate.verify(issuer.getPublicKey());
            return issuer.getBasicConstraints() >= 0;
        } catch (GeneralSecurityException e) {
            return false;
        }
    }

    /** The same; without trust in the predecessor once the takeover is over. */
    ServingCertificate withoutOldPredecessor(Instant now) {
        boolean over = trusted.size() > 1 && !now.isBefore(created().plus(TAKEOVER));
        return over ? new ServingCertificate(key, certificate, List.of(certificate)) : this;
    }

    Instant expires() {
        return certificate.getNotAfter().toInstant();
    }

    /** Without the key. */
    @Override
    public String toString() {
        return "ServingCertificate[" + certificate.getSerialNumber().toString(16) + " until " + expires() + "]";
    }

    Instant created() {
        return certificate.getNotBefore().toInstant().plus(MAX_SKEW);
    }

    private static String text(Map<String, String> data, String field) {
        String value = data.get(field);
        if (value == null) {
            throw new FormatException(field + " is missing");
        }
        try {
            return new String(Base64.getDecoder().decode(value), StandardCharsets.ISO_8859_1);
        } catch (IllegalArgumentException e) {
            throw new FormatException(field + " is not base64", e);
        }
    }

    private static List<X509Certificate> certificates(String field, String pem) {
        try {
            return PemContent.of(pem).getCertificates();
        } catch (IllegalArgumentException | IllegalStateException e) {
            throw new FormatException(field + " contains no valid certificate", e);
        }
    }

    private static PrivateKey key(String pem) {
        try {
            return Objects.requireNonNull(PemContent.of(pem).getPrivateKey());
        } catch (IllegalArgumentException | IllegalStateException e) {
            throw new FormatException(KEY + " is not a valid private key", e);
        }
    }

    private static boolean signs(PrivateKey key, X509Certificate certificate) {
        try {
            byte[] nonce = "aliquot".getBytes(StandardCharsets.US_ASCII);
            Signature signature = Signature.getInstance(ALGORITHM);
            signature.initSign(key);
            signature.update(nonce);
            byte[] signed = signature.sign();
            signature.initVerify(certificate.getPublicKey());
            signature.update(nonce);
            return signature.verify(signed);
        } catch (GeneralSecurityException e) {
            return false; // for example an RSA certificate
        }
    }

    private static List<String> hosts(X509Certificate certificate) {
        try {
            Collection<List<?>> names = certificate.getSubjectAlternativeNames();
            return names == null
                    ? List.of()
                    : names.stream()
                            .filter(name -> name.get(0).equals(DNS_NAME))
                            .map(name -> String.valueOf(name.get(1)))
                            .toList();
        } catch (CertificateException e) {
            return List.of();
        }
    }

    /** PEM blocks of certificates and {@link PemObject}s. */
    private static String pem(List<?> objects) {
        var text = new StringWriter();
        try (var writer = new JcaPEMWriter(text)) {
            for (Object object : objects) {
                writer.writeObject(object);
            }
        } catch (IOException e) {
            throw new UncheckedIOException("cannot write PEM to memory", e);
        }
        return text.toString();
    }

    private static String base64(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.US_ASCII));
    }
}
