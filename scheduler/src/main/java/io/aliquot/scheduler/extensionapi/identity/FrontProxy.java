package io.aliquot.scheduler.extensionapi.identity;

import io.aliquot.api.format.FormatException;
import jakarta.servlet.http.HttpServletRequest;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.cert.CertPathBuilder;
import java.security.cert.CertStore;
import java.security.cert.CertificateException;
import java.security.cert.CollectionCertStoreParameters;
import java.security.cert.PKIXBuilderParameters;
import java.security.cert.TrustAnchor;
import java.security.cert.X509CertSelector;
import java.security.cert.X509Certificate;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Date;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.bouncycastle.asn1.x500.RDN;
import org.bouncycastle.asn1.x500.style.BCStyle;
import org.bouncycastle.asn1.x500.style.IETFUtils;
import org.bouncycastle.cert.jcajce.JcaX509CertificateHolder;
import org.springframework.boot.ssl.pem.PemContent;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/**
 * By which client certificate the API server's front proxy is recognized, and in which headers it names the user of a
 * request (k8s.io/apiserver, pkg/authentication/request/headerrequest). Immutable.
 *
 * @param authorities the CAs of the front proxy's certificate
 * @param names the common names that its certificate may have; empty for any
 */
record FrontProxy(
        List<X509Certificate> authorities,
        Set<String> names,
        List<String> userHeaders,
        List<String> uidHeaders,
        List<String> groupHeaders,
        List<String> extraPrefixes) {
    private static final String AUTHORITIES = "requestheader-client-ca-file";
    private static final String NAMES = "requestheader-allowed-names";
    private static final String CLIENT_AUTHORITIES = "client-ca-file";

    private static final String CLIENT_AUTH = "1.3.6.1.5.5.7.3.2"; // id-kp-clientAuth (RFC 5280, 4.2.1.12)
    private static final String ANY_USAGE = "2.5.29.37.0"; // anyExtendedKeyUsage (the same)

    /**
     * Reads the data of the ConfigMap.
     *
     * @throws FormatException that says what the API server lacks
     */
    static FrontProxy parse(Map<String, String> data) {
        List<X509Certificate> authorities = certificates(data, AUTHORITIES);
        if (authorities.isEmpty()) {
            throw new FormatException("the API server names no CA of its front proxy; start it with"
                    + " --requestheader-client-ca-file and the other flags of the aggregation layer");
        }
        Set<String> names = Set.copyOf(strings(data, NAMES));
        if (names.isEmpty() && overlaps(authorities, certificates(data, CLIENT_AUTHORITIES))) {
            throw new FormatException(
                    "the API server's front proxy may have any name, and its CA issues certificates of"
                            + " users, too: each of them could pass for the front proxy; set --requestheader-allowed-names");
        }
        return new FrontProxy(
                authorities,
                names,
                strings(data, "requestheader-username-headers"),
                strings(data, "requestheader-uid-headers"),
                strings(data, "requestheader-group-headers"),
                strings(data, "requestheader-extra-headers-prefix"));
    }

    /** Why the client is not the front proxy, in a few words; empty if it is. */
    Optional<String> refusal(X509Certificate[] chain, Instant now) {
        if (chain.length == 0) {
            return Optional.of("the client presents no certificate");
        }
        X509Certificate client = chain[0];
        try {
            var selector = new X509CertSelector();
            selector.setCertificate(client);
            var parameters = new PKIXBuilderParameters(
                    authorities.stream()
                            .map(authority -> new TrustAnchor(authority, null))
                            .collect(Collectors.toSet()),
                    selector);
            parameters.setRevocationEnabled(false);
            parameters.setDate(Date.from(now));
            parameters.addCertStore(
                    CertStore.getInstance("Collection", new CollectionCertStoreParameters(Arrays.asList(chain))));
            var unused = CertPathBuilder.getInstance("PKIX").build(parameters);
            List<String> usages = client.getExtendedKeyUsage();
            if (usages != null && !usages.contains(CLIENT_AUTH) && !usages.contains(ANY_USAGE)) {
                return Optional.of("the client's certificate is not for clients");
            }
            Set<String> found = commonNames(client);
            return names.isEmpty() || (found.size() == 1 && names.containsAll(found))
                    ? Optional.empty()
                    : Optional.of("the client's certificate has a name that is not allowed");
        } catch (GeneralSecurityException e) {
            return Optional.of("the client's certificate is not valid now or not of the front proxy's CA");
        }
    }

    /** The user that the headers name; empty if they name none. Only to be called for the front proxy's requests. */
    Optional<RequestUser> user(HttpServletRequest request) {
        String name = first(request, userHeaders);
        if (name.isEmpty()) {
            return Optional.empty();
        }
        var groups = new ArrayList<String>();
        groupHeaders.forEach(header -> groups.addAll(values(request, header)));
        var extra = new LinkedHashMap<String, List<String>>();
        for (String header : Collections.list(request.getHeaderNames())) {
            String lower = header.toLowerCase(Locale.ROOT);
            for (String prefix : extraPrefixes) {
                String start = prefix.toLowerCase(Locale.ROOT);
                if (lower.startsWith(start) && lower.length() > start.length()) {
                    extra.put(key(lower.substring(start.length())), values(request, header));
                }
            }
        }
        return Optional.of(new RequestUser(name, first(request, uidHeaders), groups, extra));
    }

    private static String first(HttpServletRequest request, List<String> headers) {
        return headers.stream()
                .flatMap(header -> values(request, header).stream())
                .filter(value -> !value.isEmpty())
                .findFirst()
                .orElse("");
    }

    /** The API server sends UTF-8, which Tomcat reads as Latin-1. */
    private static List<String> values(HttpServletRequest request, String header) {
        return Collections.list(request.getHeaders(header)).stream()
                .map(value -> new String(value.getBytes(StandardCharsets.ISO_8859_1), StandardCharsets.UTF_8))
                .toList();
    }

    /** The API server escapes what a header's name may not contain; one that is no escape stays as it is. */
    private static String key(String escaped) {
        try {
            return URLDecoder.decode(escaped.replace("+", "%2b"), StandardCharsets.UTF_8);
        } catch (IllegalArgumentException e) {
            return escaped;
        }
    }

    private static Set<String> commonNames(X509Certificate certificate) throws CertificateException {
        var names = new HashSet<String>();
        RDN[] all = new JcaX509CertificateHolder(certificate).getSubject().getRDNs(BCStyle.CN);
        for (RDN name : all) {
            names.add(IETFUtils.valueToString(name.getFirst().getValue()));
        }
        return names;
    }

    /** Whether a certificate of the clients' CAs passes for one of the front proxy's. */
    private static boolean overlaps(List<X509Certificate> authorities, List<X509Certificate> clients) {
        return authorities.stream()
                .anyMatch(authority -> clients.stream()
                        .anyMatch(client ->
                                authority.getPublicKey().equals(client.getPublicKey()) || issued(authority, client)));
    }

    private static boolean issued(X509Certificate authority, X509Certificate certificate) {
        try {
            certificate.verify(authority.getPublicKey());
            return true;
        } catch (GeneralSecurityException e) {
            return false;
        }
    }

    private static List<X509Certificate> certificates(Map<String, String> data, String key) {
        String pem = data.getOrDefault(key, "");
        try {
            return pem.isEmpty() ? List.of() : PemContent.of(pem).getCertificates();
        } catch (IllegalArgumentException | IllegalStateException e) {
            throw new FormatException(key + " contains something other than certificates", e);
        }
    }

    /** A JSON list of strings; none if it is missing. */
    private static List<String> strings(Map<String, String> data, String key) {
        String text = data.getOrDefault(key, "");
        if (text.isEmpty()) {
            return List.of();
        }
        try {
            JsonNode list = JsonMapper.shared().readTree(text);
            if (list.isArray() && list.valueStream().allMatch(JsonNode::isString)) {
                return list.valueStream().map(JsonNode::asString).toList();
            }
        } catch (JacksonException e) {
            throw new FormatException(key + " is not JSON", e);
        }
        throw new FormatException(key + " is not a list of strings");
    }
}
