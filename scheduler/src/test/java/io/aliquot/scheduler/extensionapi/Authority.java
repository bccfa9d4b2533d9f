package io.aliquot.scheduler.extensionapi;

import java.io.StringWriter;
import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.PrivateKey;
import java.security.SecureRandom;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.time.Instant;
import java.util.Date;
import org.bouncycastle.asn1.x500.X500Name;
import org.bouncycastle.asn1.x509.BasicConstraints;
import org.bouncycastle.asn1.x509.ExtendedKeyUsage;
import org.bouncycastle.asn1.x509.Extension;
import org.bouncycastle.asn1.x509.GeneralName;
import org.bouncycastle.asn1.x509.GeneralNames;
import org.bouncycastle.asn1.x509.KeyPurposeId;
import org.bouncycastle.cert.X509v3CertificateBuilder;
import org.bouncycastle.cert.jcajce.JcaX509CertificateConverter;
import org.bouncycastle.cert.jcajce.JcaX509v3CertificateBuilder;
import org.bouncycastle.openssl.jcajce.JcaPEMWriter;
import org.bouncycastle.operator.jcajce.JcaContentSignerBuilder;
import org.bouncycastle.util.io.pem.PemObject;

/** A certificate authority of a test. */
public final class Authority {
    private static final SecureRandom RANDOM = new SecureRandom();

    public final X509Certificate certificate;
    private final X500Name name;
    private final KeyPair keys;

    /** A certificate with its key. */
    public record Identity(PrivateKey key, X509Certificate certificate) {}

    public Authority(String name) throws Exception {
        this.name = new X500Name("CN=" + name);
        this.keys = keys();
        this.certificate = sign(new JcaX509v3CertificateBuilder(
                        this.name,
                        new BigInteger(100, RANDOM),
                        Date.from(now().minus(Duration.ofDays(9))),
                        Date.from(now().plus(Duration.ofDays(9))),
                        this.name,
                        keys.getPublic())
                .addExtension(Extension.basicConstraints, true, new BasicConstraints(true)));
    }

    /** A client's certificate that is valid from a day ago. */
    public Identity client(String commonName) throws Exception {
        return issue(commonName, KeyPurposeId.id_kp_clientAuth, Duration.ofDays(1));
    }

    Identity issue(String commonName, KeyPurposeId usage, Duration validFor) throws Exception {
        KeyPair pair = keys();
        var builder = new JcaX509v3CertificateBuilder(
                        name,
                        new BigInteger(100, RANDOM),
                        Date.from(now().minus(Duration.ofDays(1))),
                        Date.from(now().plus(validFor)),
                        new X500Name("CN=" + commonName),
                        pair.getPublic())
                .addExtension(Extension.extendedKeyUsage, false, new ExtendedKeyUsage(usage))
                .addExtension(
                        Extension.subjectAlternativeName,
                        false,
                        new GeneralNames(new GeneralName(GeneralName.dNSName, commonName)));
        return new Identity(pair.getPrivate(), sign(builder));
    }

    String pem() throws Exception {
        return pem(certificate);
    }

    /** Writes a certificate or a key to a file of a folder. */
    public static Path write(Path folder, String name, Object content) throws Exception {
        return Files.writeString(folder.resolve(name), pem(content));
    }

    /** Go and OpenSSL read no EC key whose curve is spelled out, which is how Bouncy Castle writes one by itself. */
    private static String pem(Object object) throws Exception {
        var text = new StringWriter();
        try (var writer = new JcaPEMWriter(text)) {
            writer.writeObject(
                    object instanceof PrivateKey key ? new PemObject("PRIVATE KEY", key.getEncoded()) : object);
        }
        return text.toString();
    }

    private X509Certificate sign(X509v3CertificateBuilder builder) throws Exception {
        return new JcaX509CertificateConverter()
                .getCertificate(builder.build(new JcaContentSignerBuilder("SHA256withECDSA").build(keys.getPrivate())));
    }

    private static KeyPair keys() throws Exception {
        var generator = KeyPairGenerator.getInstance("EC");
        generator.initialize(256, RANDOM);
        return generator.generateKeyPair();
    }

    private static Instant now() {
        return java.time.Clock.systemUTC().instant();
    }
}
