package io.aliquot.deviceplugin.report;

import io.aliquot.api.nodes.CertificateDigest;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.PrivateKey;
import java.security.Signature;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.ECGenParameterSpec;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;

/**
 * A key of this process, which no other process gets, and its certificate. The scheduler knows the certificate by its
 * digest in the node's inventory, so nothing else that a certificate says counts: it is self-signed, names no host and
 * does not expire. A restart of the agent replaces both.
 */
public record AgentCertificate(PrivateKey key, X509Certificate certificate) {
    private static final X500Principal NAME = new X500Principal("CN=aliquot-node-agent");
    /** No certain end (RFC 5280, 4.1.2.5). */
    private static final String NEVER = "99991231235959Z";

    private static final String LONG_AGO = "700101000000Z";

    /** ecdsa-with-SHA256 as an AlgorithmIdentifier (RFC 5758, 3.2). */
    private static final byte[] SIGNATURE_ALGORITHM = HexFormat.of().parseHex("300a06082a8648ce3d040302");

    // Tags of ASN.1 (X.690).
    private static final int INTEGER = 0x02;
    private static final int BIT_STRING = 0x03;
    private static final int UTC_TIME = 0x17;
    private static final int GENERALIZED_TIME = 0x18;
    private static final int SEQUENCE = 0x30;

    /** Creates a key on P-256 and its certificate. */
    public static AgentCertificate create() {
        try {
            KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
            generator.initialize(new ECGenParameterSpec("secp256r1"));
            KeyPair keys = generator.generateKeyPair();
            byte[] content = content(keys.getPublic().getEncoded());
            Signature signature = Signature.getInstance("SHA256withECDSA");
            signature.initSign(keys.getPrivate());
            signature.update(content);
            byte[] encoded =
                    der(SEQUENCE, content, SIGNATURE_ALGORITHM, der(BIT_STRING, new byte[] {0}, signature.sign()));
            return new AgentCertificate(keys.getPrivate(), (X509Certificate)
                    CertificateFactory.getInstance("X.509").generateCertificate(new ByteArrayInputStream(encoded)));
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("cannot create an EC certificate", e);
        }
    }

    /** What is signed: TBSCertificate of RFC 5280, 4.1, in version 1, which has no extensions. The JDK cannot write one. */
    private static byte[] content(byte[] publicKey) {
        return der(
                SEQUENCE,
                der(INTEGER, BigInteger.ONE.toByteArray()),
                SIGNATURE_ALGORITHM,
                NAME.getEncoded(),
                der(SEQUENCE, der(UTC_TIME, ascii(LONG_AGO)), der(GENERALIZED_TIME, ascii(NEVER))),
                NAME.getEncoded(),
                publicKey);
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    /** A value with its tag and its length, in DER. */
    private static byte[] der(int tag, byte[]... parts) {
        var value = new ByteArrayOutputStream();
        for (byte[] part : parts) {
            value.writeBytes(part);
        }
        var encoded = new ByteArrayOutputStream();
        encoded.write(tag);
        if (value.size() >= 0x100) {
            encoded.write(0x82); // two bytes of length follow
            encoded.write(value.size() >> 8);
        } else if (value.size() >= 0x80) {
            encoded.write(0x81);
        }
        encoded.write(value.size());
        encoded.writeBytes(value.toByteArray());
        return encoded.toByteArray();
    }

    /** The certificate's {@link CertificateDigest}. */
    public String digest() {
        return CertificateDigest.of(certificate);
    }

    /** Without the key. */
    @Override
    public String toString() {
        return "AgentCertificate[" + digest() + "]";
    }
}
