package io.aliquot.deviceplugin.node;

import java.util.Map;
import java.util.Set;

/** A change of a Node's labels and annotations. */
public record MetadataPatch(
        Map<String, String> labels,
        Map<String, String> annotations,
        Set<String> removedLabels,
        Set<String> removedAnnotations) {
    public MetadataPatch {
        labels = Map.copyOf(labels);
        annotations = Map.copyOf(annotations);
        removedLabels = Set.copyOf(removedLabels);
        removedAnnotations = Set.copyOf(removedAnnotations);
    }

    public static MetadataPatch set(Map<String, String> labels, Map<String, String> annotations) {
        return new MetadataPatch(labels, annotations, Set.of(), Set.of());
    }

    public static MetadataPatch remove(Set<String> labels, Set<String> annotations) {
        return new MetadataPatch(Map.of(), Map.of(), labels, annotations);
    }

    public boolean isEmpty() {
        return labels.isEmpty() && annotations.isEmpty() && removedLabels.isEmpty() && removedAnnotations.isEmpty();
    }
}
