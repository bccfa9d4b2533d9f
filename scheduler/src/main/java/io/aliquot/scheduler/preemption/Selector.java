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
    private static final Set<String> OPERATORS = Set.of("In", "NotIn", "Exists", "DoesNotExist");

    /**
     * A condition on one label.
     *
     * @param operator {@code In}, {@code NotIn}, {@code Exists} or {@code DoesNotExist}
     */
    public record Condition(String label, String operator, Set<String> values) {
        public Condition {
            values = Set.copyOf(values);
            if (!OPERATORS.contains(operator)) {
                throw new IllegalArgumentException("expected In, NotIn, Exists or DoesNotExist, found " + operator);
            }
        }

        private boolean holds(Map<String, String> labels) {
            String value = labels.get(label);
            return switch (operator) {
                case "In" -> value != null && values.contains(value);
                case "NotIn" -> value == null || !values.contains(value);
                case "Exists" -> value != null;
                default -> value == null;
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
