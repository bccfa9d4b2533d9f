package io.aliquot.scheduler.inspection;

import io.aliquot.scheduler.inspection.AccessReviews.Caller;
import io.aliquot.scheduler.inspection.ApiTypes.Page;
import jakarta.servlet.http.HttpServletRequest;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.regex.Pattern;
import org.springframework.web.servlet.HandlerMapping;

/**
 * The caller of a request and its parameters: the variables of its path, filters, and the page of a list. Unknown and
 * repeated query parameters are refused.
 */
final class ApiRequest {
    static final String LIMIT = "limit";
    static final String AFTER = "after";
    private static final int MAX_LIMIT = 1000;
    private static final int DEFAULT_LIMIT = 250;
    private static final int MAX_AFTER_LENGTH = 2000;
    /** Names of namespaces, pods and nodes: RFC 1123 subdomains (Kubernetes, "Object Names and IDs"). */
    private static final Pattern NAME =
            Pattern.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*");

    private static final Pattern GPU =
            Pattern.compile("GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}");

    private final Caller caller;
    private final Map<String, String> values;

    private ApiRequest(Caller caller, Map<String, String> values) {
        this.caller = caller;
        this.values = values;
    }

    /**
     * Reads a request.
     *
     * @param names the query parameters that this path accepts
     * @throws ApiException with status 400 if a parameter is unknown or repeated
     */
    static ApiRequest of(HttpServletRequest request, String... names) {
        Set<String> known = new TreeSet<>(Arrays.asList(names));
        @SuppressWarnings("unchecked") // Spring MVC sets it
        var variables = (Map<String, String>) request.getAttribute(HandlerMapping.URI_TEMPLATE_VARIABLES_ATTRIBUTE);
        var values = new TreeMap<>(variables);
        parameters(request).forEach((name, all) -> {
            if (!known.contains(name)) {
                throw ApiException.badRequest(
                        known.isEmpty()
                                ? "this path takes no parameters; leave out the question mark and all that follows"
                                : "unknown parameter; allowed: " + String.join(", ", known));
            }
            if (all.length != 1) {
                throw ApiException.badRequest(name + ": write this parameter once");
            }
            values.put(name, all[0]);
        });
        return new ApiRequest((Caller) request.getAttribute(TokenFilter.CALLER), values);
    }

    private static Map<String, String[]> parameters(HttpServletRequest request) {
        try {
            return request.getParameterMap();
        } catch (IllegalStateException e) { // Servlet 6.1 throws this if a parameter cannot be decoded
            throw ApiException.badRequest("write parameters as name=value, in UTF-8 and percent-encoded");
        }
    }

    Caller caller() {
        return caller;
    }

    /** The name of a namespace, pod or node, from the path or the query; empty if the parameter is absent. */
    String name(String parameter) {
        String name = values.get(parameter);
        if (name == null) {
            return "";
        }
        if (name.length() > 253 || !NAME.matcher(name).matches()) {
            throw ApiException.badRequest(parameter
                    + ": write the name of a Kubernetes object: lower-case letters, digits, - and ., at most 253");
        }
        return name;
    }

    /** A GPU's UUID; empty if the parameter is absent. */
    String gpu(String parameter) {
        String uuid = values.get(parameter);
        return uuid == null ? "" : checkGpu(parameter, uuid);
    }

    /**
     * Returns a GPU's UUID if it is valid.
     *
     * @param where the parameter or field, for the message
     */
    static String checkGpu(String where, String value) {
        if (!GPU.matcher(value).matches()) {
            throw ApiException.badRequest(
                    where + ": write a GPU's UUID such as GPU-8f6e8f0c-12ab-34cd-56ef-1234567890ab");
        }
        return value;
    }

    /**
     * The requested page of a list.
     *
     * @param key unique for each item; the list is sorted by it
     * @param print maps an item to its JSON
     */
    <K, T> Page<T> page(List<K> all, Function<K, String> key, Function<K, T> print) {
        int limit = limit();
        String after = after();
        List<K> rest = all.stream()
                .filter(one -> key.apply(one).compareTo(after) > 0)
                .sorted(Comparator.comparing(key))
                .limit(limit + 1L)
                .toList();
        boolean more = rest.size() > limit;
        List<K> shown = more ? rest.subList(0, limit) : rest;
        return new Page<>(
                shown.stream().map(print).toList(), all.size(), more ? encode(key.apply(shown.get(limit - 1))) : null);
    }

    private int limit() {
        String text = values.getOrDefault(LIMIT, Integer.toString(DEFAULT_LIMIT));
        if (!text.matches("[0-9]{1,4}") || Integer.parseInt(text) < 1 || Integer.parseInt(text) > MAX_LIMIT) {
            throw ApiException.badRequest(LIMIT + ": write a whole number from 1 to " + MAX_LIMIT);
        }
        return Integer.parseInt(text);
    }

    private String after() {
        String text = values.get(AFTER);
        if (text == null) {
            return "";
        }
        if (text.length() <= MAX_AFTER_LENGTH && text.matches("([0-9a-f]{2})+")) {
            return new String(HexFormat.of().parseHex(text), StandardCharsets.UTF_8);
        }
        throw ApiException.badRequest(
                AFTER + ": write the field next of the previous page, or leave it out for the first page");
    }

    private static String encode(String key) {
        return HexFormat.of().formatHex(key.getBytes(StandardCharsets.UTF_8));
    }
}
