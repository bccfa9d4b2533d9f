package io.aliquot.api.nodes;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.Sha256;
import java.security.cert.Certificate;
import java.security.cert.CertificateEncodingException;
import java.util.List;
import java.util.Set;
import java.util.regex.Pattern;

/** The SHA-256 digest of a certificate in DER, as 64 hexadecimal digits in lower case: it names one certificate and its key. */
public final class CertificateDigest {
    private static final Pattern DIGEST = Pattern.compile("[0-9a-f]{64}");

    private static final int MOST = 20;
    private static final int LONGEST_SHOWN = 100;

    private CertificateDigest() {}

    public static String of(Certificate certificate) {
        try {
            return Sha256.hex(certificate.getEncoded());
        } catch (CertificateEncodingException e) {
            throw new IllegalStateException("cannot digest a certificate", e);
        }
    }

    /**
     * Reads digests with commas between them.
     *
     * @throws FormatException unless there is one, and there are few
     */
    public static Set<String> parseList(String name, String text) {
        Set<String> digests = Set.copyOf(List.of(text.split(",", -1)));
        if (digests.size() > MOST || !digests.stream().allMatch(CertificateDigest::isOne)) {
            throw new FormatException("expected in " + name + " up to " + MOST
                    + " digests of certificates, each 64 hexadecimal digits, found \""
                    + text.substring(0, Math.min(text.length(), LONGEST_SHOWN)) + "\"");
        }
        return digests;
    }

    static boolean isOne(String text) {
        return DIGEST.matcher(text).matches();
    }
}
