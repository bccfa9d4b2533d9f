package io.aliquot.api.names;

import java.security.cert.Certificate;
import java.security.cert.CertificateEncodingException;
import java.util.regex.Pattern;

/** The SHA-256 digest of a certificate in DER, as 64 hexadecimal digits in lower case: it names one certificate and its key. */
public final class CertificateDigest {
    private static final Pattern DIGEST = Pattern.compile("[0-9a-f]{64}");

    private CertificateDigest() {}

    public static String of(Certificate certificate) {
        try {
            return Sha256.hex(certificate.getEncoded());
        } catch (CertificateEncodingException e) {
            throw new IllegalStateException("cannot digest a certificate", e);
        }
    }

    static boolean isOne(String text) {
        return DIGEST.matcher(text).matches();
    }
}
