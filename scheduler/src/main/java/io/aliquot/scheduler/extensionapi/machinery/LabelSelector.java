package io.aliquot.scheduler.extensionapi.machinery;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** A label selector in its text form, such as {@code app=train,tier in (a, b),!canary} (k8s.io/apimachinery, labels). */
record LabelSelector(List<Predicate<Map<String, String>>> requirements) {
    private static final int LONGEST = 16_384;
    private static final String KEY =
            "(?<key>([A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9][-A-Za-z0-9_.]{0,62})";
    private static final Pattern VALUE = Pattern.compile("([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?");
    private static final Pattern EXISTS = Pattern.compile("(?<not>!?)\\s*" + KEY);
    private static final Pattern EQUALS = Pattern.compile(KEY + "\\s*(?<operator>==|=|!=)\\s*(?<value>\\S*)");
    private static final Pattern IN = Pattern.compile(KEY + "\\s+(?<operator>in|notin)\\s*\\((?<values>[^()]*)\\)");

    /**
     * Reads a selector; the empty one matches everything.
     *
     * @throws StatusException with code 400
     */
    static LabelSelector parse(String text) {
        if (text.length() > LONGEST) {
            throw StatusException.badRequest("labelSelector: longer than " + LONGEST + " characters");
        }
        var requirements = new ArrayList<Predicate<Map<String, String>>>();
        if (!text.isBlank()) {
            split(text).forEach(part -> requirements.add(requirement(part.strip())));
        }
        return new LabelSelector(requirements);
    }

    boolean matches(Map<String, String> labels) {
        return requirements.stream().allMatch(requirement -> requirement.test(labels));
    }

    /** Splits at the commas outside of parentheses. */
    private static List<String> split(String text) {
        var parts = new ArrayList<String>();
        int start = 0;
        boolean inside = false;
        for (int i = 0; i < text.length(); i++) {
            char one = text.charAt(i);
            inside = one == '(' || (inside && one != ')');
            if (one == ',' && !inside) {
                parts.add(text.substring(start, i));
                start = i + 1;
            }
        }
        parts.add(text.substring(start));
        return parts;
    }

    private static Predicate<Map<String, String>> requirement(String part) {
        Matcher in = IN.matcher(part);
        if (in.matches()) {
            String key = in.group("key");
            Set<String> values = Stream.of(in.group("values").split(",", -1))
                    .map(value -> value(part, value.strip()))
                    .collect(Collectors.toSet());
            return in.group("operator").equals("in")
                    ? labels -> labels.containsKey(key) && values.contains(labels.get(key))
                    : labels -> !labels.containsKey(key) || !values.contains(labels.get(key));
        }
        Matcher equals = EQUALS.matcher(part);
        if (equals.matches()) {
            String key = equals.group("key");
            String value = value(part, equals.group("value"));
            return equals.group("operator").equals("!=")
                    ? labels -> !value.equals(labels.get(key))
                    : labels -> value.equals(labels.get(key));
        }
        Matcher exists = EXISTS.matcher(part);
        if (exists.matches()) {
            String key = exists.group("key");
            return exists.group("not").isEmpty()
                    ? labels -> labels.containsKey(key)
                    : labels -> !labels.containsKey(key);
        }
        throw malformed(part);
    }

    private static String value(String part, String value) {
        if (!VALUE.matcher(value).matches()) {
            throw malformed(part);
        }
        return value;
    }

    private static StatusException malformed(String part) {
        return StatusException.badRequest("labelSelector: unable to parse \"" + part
                + "\"; write for example app=train, app!=train, app in (a,b), app notin (a,b), app or !app");
    }
}
