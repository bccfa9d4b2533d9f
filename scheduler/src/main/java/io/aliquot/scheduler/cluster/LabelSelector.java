package io.aliquot.scheduler.cluster;

import io.aliquot.api.format.FormatException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** A label selector (k8s.io/apimachinery, labels): all requirements must hold; without any it selects everything. */
public record LabelSelector(List<Requirement> requirements) {
    private static final int LONGEST = 16_384;
    private static final String KEY =
            "(?<key>([A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9][-A-Za-z0-9_.]{0,62})";
    private static final Pattern VALUE = Pattern.compile("([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?");
    private static final Pattern EXISTS = Pattern.compile("(?<not>!?)\\s*" + KEY);
    private static final Pattern EQUALS = Pattern.compile(KEY + "\\s*(?<operator>==|=|!=)\\s*(?<value>\\S*)");
    private static final Pattern IN = Pattern.compile(KEY + "\\s+(?<operator>in|notin)\\s*\\((?<values>[^()]*)\\)");

    public LabelSelector {
        requirements = List.copyOf(requirements);
    }

    /**
     * A requirement on one label.
     *
     * @param operator {@code In}, {@code NotIn}, {@code Exists} or {@code DoesNotExist}
     */
    public record Requirement(String key, String operator, Set<String> values) {
        private static final Set<String> OPERATORS = Set.of("In", "NotIn", "Exists", "DoesNotExist");

        public Requirement {
            values = Set.copyOf(values);
            if (!OPERATORS.contains(operator)) {
                throw new IllegalArgumentException("expected In, NotIn, Exists or DoesNotExist, found " + operator);
            }
        }

        private boolean holds(Map<String, String> labels) {
            String value = labels.get(key);
            return switch (operator) {
                case "In" -> value != null && values.contains(value);
                case "NotIn" -> value == null || !values.contains(value);
                case "Exists" -> value != null;
                default -> value == null;
            };
        }
    }

    /** The form in objects: {@code equal} are the labels of {@code matchLabels}, {@code further} those of {@code matchExpressions}. */
    public static LabelSelector of(Map<String, String> equal, List<Requirement> further) {
        var all = new ArrayList<>(further);
        equal.forEach((key, value) -> all.add(new Requirement(key, "In", Set.of(value))));
        return new LabelSelector(all);
    }

    /**
     * Reads the text form, such as {@code app=train,tier in (a, b),!canary}.
     *
     * @throws FormatException if it is malformed
     */
    public static LabelSelector parse(String text) {
        if (text.length() > LONGEST) {
            throw new FormatException("longer than " + LONGEST + " characters");
        }
        return new LabelSelector(
                text.isBlank()
                        ? List.of()
                        : split(text).stream()
                                .map(part -> requirement(part.strip()))
                                .toList());
    }

    public boolean matches(Map<String, String> labels) {
        return requirements.stream().allMatch(requirement -> requirement.holds(labels));
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

    private static Requirement requirement(String part) {
        Matcher in = IN.matcher(part);
        if (in.matches()) {
            Set<String> values = Stream.of(in.group("values").split(",", -1))
                    .map(value -> value(part, value.strip()))
                    .collect(Collectors.toSet());
            return new Requirement(in.group("key"), in.group("operator").equals("in") ? "In" : "NotIn", values);
        }
        Matcher equals = EQUALS.matcher(part);
        if (equals.matches()) {
            Set<String> values = Set.of(value(part, equals.group("value")));
            return new Requirement(equals.group("key"), equals.group("operator").equals("!=") ? "NotIn" : "In", values);
        }
        Matcher exists = EXISTS.matcher(part);
        if (exists.matches()) {
            return new Requirement(
                    exists.group("key"), exists.group("not").isEmpty() ? "Exists" : "DoesNotExist", Set.of());
        }
        throw malformed(part);
    }

    private static String value(String part, String value) {
        if (!VALUE.matcher(value).matches()) {
            throw malformed(part);
        }
        return value;
    }

    private static FormatException malformed(String part) {
        return new FormatException("unable to parse \"" + part
                + "\"; write for example app=train, app!=train, app in (a,b), app notin (a,b), app or !app");
    }
}
