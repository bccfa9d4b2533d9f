package io.aliquot.scheduler.preemption;

import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Selects the pods of a disruption budget within its namespace (Kubernetes API, LabelSelector).
 *
 * @param equal label values that a pod must have
 * @param further conditions that must hold as well
 */
public record Selector(Map<String, String> equal, List<Condition> further) {
    /** A condition on one label. */
    public record Condition(String label, Operator operator, Set<String> values) {
        public Condition {
            values = Set.copyOf(values);
        }

        private boolean holds(Map<String, String> labels) {
            String value = labels.get(label);
            return switch (operator) {
                case IN -> value != null && values.contains(value);
                case NOT_IN -> value == null || !values.contains(value);
                case EXISTS -> value != null;
                case DOES_NOT_EXIST -> value == null;
            };
        }
    }

    public enum Operator {
        IN,
        NOT_IN,
        EXISTS,
        DOES_NOT_EXIST;

        /**
         * Parses the name that the API uses.
         *
         * @throws IllegalArgumentException for any other text
         */
        public static Operator parse(String text) {
            return switch (text) {
                case "In" -> IN;
                case "NotIn" -> NOT_IN;
                case "Exists" -> EXISTS;
                case "DoesNotExist" -> DOES_NOT_EXIST;
                default ->
                    throw new IllegalArgumentException("expected In, NotIn, Exists or DoesNotExist, found " + text);
            };
        }
    }

    public Selector {
        equal = Map.copyOf(equal);
        further = List.copyOf(further);
    }

    /** Whether the selector matches a pod with these labels; an empty selector matches every pod (policy/v1). */
    boolean matches(Map<String, String> labels) {
        return equal.entrySet().stream().allMatch(wanted -> wanted.getValue().equals(labels.get(wanted.getKey())))
                && further.stream().allMatch(condition -> condition.holds(labels));
    }
}
