package io.aliquot.scheduler.admission.certificate;

import io.aliquot.api.FormatException;
import io.aliquot.scheduler.server.CertificateSource.Identity;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.PrivateKey;
import java.security.SecureRandom;
import java.security.Signature;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.ECGenParameterSpec;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
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
import org.bouncycastle.operator.OperatorCreationException;
import org.bouncycastle.operator.jcajce.JcaContentSignerBuilder;

/**
 * What the webhooks show and what the API server shall trust, as the Secret keeps it.
 *
 * <p>The certificate is signed by its own key and is its own trust anchor: Go accepts a leaf that is itself among the
 * roots (crypto/x509, Verify). A certificate authority between would be one more private key, either stored beside this
 * one and worth just as much to a thief, or thrown away and good for nothing.
 *
 * @param key EC P-256
 * @param certificate for our Services, 90 days
 * @param trusted the certificate, and while it takes over also the one before
 */
record ServingCertificate(PrivateKey key, X509Certificate certificate, List<X509Certificate> trusted) {
    private static final String CERTIFICATE = "tls.crt";
    private static final String KEY = "tls.key";
    private static final String TRUSTED = "ca.crt";

    private static final Duration VALIDITY = Duration.ofDays(90);
    private static final Duration RENEWAL = VALIDITY.multipliedBy(2).dividedBy(3);
    /** How far behind ours the API server's clock may be. */
    private static final Duration SKEW = Duration.ofMinutes(5);
    /** Far longer than every replica needs to show a new certificate. */
    private static final Duration TAKEOVER = Duration.ofHours(1);

    private static final String ALGORITHM = "SHA256withECDSA";
    private static final int DNS_NAME = 2; // of the alternatives in RFC 5280, 4.2.1.6
    private static final Pattern PEM_KEY =
            Pattern.compile("\\s*-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\\s]{1,4000})-----END PRIVATE KEY-----\\s*");

    ServingCertificate {
        trusted = List.copyOf(trusted);
    }

    /**
     * Makes a new one.
     *
     * @param hosts the DNS names by which it is called
     * @param shown what webhooks still show while this takes over
     */
    static ServingCertificate create(List<String> hosts, Instant now, Optional<X509Certificate> shown) {
        try {
            var random = new SecureRandom();
            KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
            generator.initialize(new ECGenParameterSpec("secp256r1"), random);
            KeyPair pair = generator.generateKeyPair();
            var name = new X500Name("CN=aliquot-webhook");
            var builder = new JcaX509v3CertificateBuilder(
                            name,
                            new BigInteger(159, random), // at most 20 octets (RFC 5280, 4.1.2.2)
                            Date.from(now.minus(SKEW)),
                            Date.from(now.plus(VALIDITY)),
                            name,
                            pair.getPublic())
                    .addExtension(Extension.basicConstraints, true, new BasicConstraints(false))
                    .addExtension(Extension.keyUsage, true, new KeyUsage(KeyUsage.digitalSignature))
                    .addExtension(
                            Extension.extendedKeyUsage, false, new ExtendedKeyUsage(KeyPurposeId.id_kp_serverAuth))
                    .addExtension(
                            Extension.subjectAlternativeName,
                            false,
                            new GeneralNames(hosts.stream()
                                    .map(host -> new GeneralName(GeneralName.dNSName, host))
                                    .toArray(GeneralName[]::new)));
            X509Certificate certificate = new JcaX509CertificateConverter()
                    .getCertificate(builder.build(new JcaContentSignerBuilder(ALGORITHM).build(pair.getPrivate())));
            return new ServingCertificate(
                    pair.getPrivate(),
                    certificate,
                    Stream.concat(Stream.of(certificate), shown.stream()).toList());
        } catch (GeneralSecurityException | OperatorCreationException | IOException e) {
            throw new IllegalStateException("every Java platform makes EC certificates", e);
        }
    }

    /**
     * Reads what a Secret holds.
     *
     * @param data as bytes in base64, as in the API
     * @throws FormatException where it is not, or no longer, of use
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

    /** What a Secret shall hold. */
    Map<String, String> print() {
        var data = new LinkedHashMap<String, String>();
        data.put(CERTIFICATE, base64(pem(List.of(certificate))));
        data.put(KEY, base64(pem("PRIVATE KEY", key.getEncoded())));
        data.put(TRUSTED, caBundle());
        return data;
    }

    /** As in a webhook's {@code clientConfig.caBundle}: PEM in base64. */
    String caBundle() {
        return base64(pem(trusted));
    }

    Identity identity() {
        return new Identity(key, List.of(certificate));
    }

    /** Whether it is old, or lacks a name that has come since. */
    boolean dueForRenewal(List<String> hosts, Instant now) {
        return !now.isBefore(made().plus(RENEWAL)) || !hosts(certificate).containsAll(hosts);
    }

    /** Without what it took over from, once that is past. */
    ServingCertificate settled(Instant now) {
        boolean past = trusted.size() > 1 && !now.isBefore(made().plus(TAKEOVER));
        return past ? new ServingCertificate(key, certificate, List.of(certificate)) : this;
    }

    Instant until() {
        return certificate.getNotAfter().toInstant();
    }

    /** Never the key. */
    @Override
    public String toString() {
        return "ServingCertificate[" + certificate.getSerialNumber().toString(16) + " until " + until() + "]";
    }

    private Instant made() {
        return certificate.getNotBefore().toInstant().plus(SKEW);
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
            var certificates = new ArrayList<X509Certificate>();
            var bytes = new ByteArrayInputStream(pem.getBytes(StandardCharsets.ISO_8859_1));
            CertificateFactory.getInstance("X.509")
                    .generateCertificates(bytes)
                    .forEach(certificate -> certificates.add((X509Certificate) certificate));
            if (certificates.isEmpty()) {
                throw new FormatException(field + " holds no certificate");
            }
            return certificates;
        } catch (CertificateException e) {
            throw new FormatException(field + " holds something that is no certificate", e);
        }
    }

    private static PrivateKey key(String pem) {
        Matcher matcher = PEM_KEY.matcher(pem);
        if (!matcher.matches()) {
            throw new FormatException(KEY + " is not one PEM block PRIVATE KEY");
        }
        try {
            byte[] encoded = Base64.getMimeDecoder().decode(matcher.group(1));
            return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(encoded));
        } catch (GeneralSecurityException | IllegalArgumentException e) {
            throw new FormatException(KEY + " is no EC key", e);
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
            return false; // an RSA certificate, say
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

    private static String pem(List<X509Certificate> certificates) {
        return certificates.stream()
                .map(certificate -> {
                    try {
                        return pem("CERTIFICATE", certificate.getEncoded());
                    } catch (CertificateException e) {
                        throw new IllegalStateException("a certificate that was read can be written", e);
                    }
                })
                .collect(Collectors.joining());
    }

    private static String pem(String type, byte[] encoded) {
        byte[] newline = {'\n'};
        return "-----BEGIN " + type + "-----\n"
                + Base64.getMimeEncoder(64, newline).encodeToString(encoded)
                + "\n-----END " + type + "-----\n";
    }

    private static String base64(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.US_ASCII));
    }
}
