package io.aliquot.api.names;

import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.cert.Certificate;
import java.util.HexFormat;
import java.util.regex.Pattern;

/** The SHA-256 digest of a certificate in DER, as 64 hexadecimal digits in lower case: it names one certificate and its key. */
public final class CertificateDigest {
    private static final Pattern DIGEST = Pattern.compile("[0-9a-f]{64}");

    private CertificateDigest() {}

    public static String of(Certificate certificate) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(certificate.getEncoded()));
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("cannot digest a certificate", e);
        }
    }

    static boolean isOne(String text) {
        return DIGEST.matcher(text).matches();
    }
}
