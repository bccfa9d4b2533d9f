package io.aliquot.scheduler.inspection;

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

/** What a request says after the question mark: filters, and which page of a list. A name that is unknown is refused. */
final class QueryParameters {
    static final String LIMIT = "limit";
    static final String AFTER = "after";
    private static final int MOST = 1000;
    private static final int USUAL = 250;
    private static final int LONGEST = 2000;
    /** Names of namespaces and pods, and of nodes: RFC 1123 subdomains (Kubernetes, object names). */
    private static final Pattern NAME =
            Pattern.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*");

    private static final Pattern GPU =
            Pattern.compile("GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}");

    private final Map<String, String> values;

    private QueryParameters(Map<String, String> values) {
        this.values = values;
    }

    /**
     * Reads them.
     *
     * @param filters the names that this path knows
     * @throws ApiException where one is unknown or there twice
     */
    static QueryParameters of(HttpServletRequest request, String... filters) {
        Set<String> known = new TreeSet<>(Arrays.asList(filters));
        var values = new TreeMap<String, String>();
        parameters(request).forEach((name, all) -> {
            if (!known.contains(name)) {
                throw ApiException.badRequest(
                        known.isEmpty()
                                ? "this path takes no parameters; leave out everything from the question mark on"
                                : "unknown parameter; allowed: " + String.join(", ", known));
            }
            if (all.length != 1) {
                throw ApiException.badRequest("write " + name + " once");
            }
            values.put(name, all[0]);
        });
        return new QueryParameters(values);
    }

    private static Map<String, String[]> parameters(HttpServletRequest request) {
        try {
            return request.getParameterMap();
        } catch (IllegalStateException e) { // Servlet 6.1: of what can't be decoded
            throw ApiException.badRequest("write parameters as name=value, in UTF-8 and percent-encoded");
        }
    }

    /** A namespace's, pod's or node's name; empty where there is none. */
    String name(String parameter) {
        String value = values.getOrDefault(parameter, "");
        return values.containsKey(parameter) ? checkName(parameter, value) : "";
    }

    /** A GPU's UUID; empty where there is none. */
    String gpu(String parameter) {
        String value = values.getOrDefault(parameter, "");
        return values.containsKey(parameter) ? checkGpu(parameter, value) : "";
    }

    /** Checks a UUID, whose place in the request is named in the message. */
    static String checkGpu(String parameter, String value) {
        if (!GPU.matcher(value).matches()) {
            throw ApiException.badRequest(
                    parameter + ": write a GPU's UUID such as GPU-8f6e8f0c-12ab-34cd-56ef-1234567890ab");
        }
        return value;
    }

    /**
     * Checks a name.
     *
     * @param what it is, for the message
     */
    static String checkName(String what, String name) {
        if (name.length() > 253 || !NAME.matcher(name).matches()) {
            throw ApiException.badRequest(
                    what + ": write a name of Kubernetes': lower-case letters, digits, - and ., at most 253");
        }
        return name;
    }

    /**
     * The page that was asked for.
     *
     * @param key by which the list is sorted and no two are alike
     * @param print what is shown
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
        String text = values.getOrDefault(LIMIT, Integer.toString(USUAL));
        if (!text.matches("[0-9]{1,4}") || Integer.parseInt(text) < 1 || Integer.parseInt(text) > MOST) {
            throw ApiException.badRequest(LIMIT + ": write a whole number from 1 to " + MOST);
        }
        return Integer.parseInt(text);
    }

    private String after() {
        String text = values.get(AFTER);
        if (text == null) {
            return "";
        }
        if (text.length() <= LONGEST && text.matches("([0-9a-f]{2})+")) {
            return new String(HexFormat.of().parseHex(text), StandardCharsets.UTF_8);
        }
        throw ApiException.badRequest(
                AFTER + ": write the field next of the page before, or leave it out for the first page");
    }

    private static String encode(String key) {
        return HexFormat.of().formatHex(key.getBytes(StandardCharsets.UTF_8));
    }
}
