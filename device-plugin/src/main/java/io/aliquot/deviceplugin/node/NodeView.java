package io.aliquot.deviceplugin.node;

import java.util.Map;

/**
 * What of our Node concerns us.
 *
 * @param capacity whole amounts of extended resources; others are left out
 * @param allocatable the same, of what may be given away
 */
public record NodeView(
        Map<String, String> labels,
        Map<String, String> annotations,
        Map<String, Long> capacity,
        Map<String, Long> allocatable) {
    public NodeView {
        labels = Map.copyOf(labels);
        annotations = Map.copyOf(annotations);
        capacity = Map.copyOf(capacity);
        allocatable = Map.copyOf(allocatable);
    }
}
