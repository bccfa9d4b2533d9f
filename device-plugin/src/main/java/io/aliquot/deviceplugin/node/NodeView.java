package io.aliquot.deviceplugin.node;

import io.aliquot.api.format.Quantity;
import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.HashMap;
import java.util.Map;
import tools.jackson.databind.JsonNode;

/**
 * The fields of a Node that the agent uses.
 *
 * @param capacity extended resources with whole amounts; other resources are left out
 * @param allocatable the same of {@code status.allocatable}
 * @param conditions of {@code status.conditions}, by type
 * @param containerRuntime name and version, such as {@code containerd://2.2.0}; empty if unknown
 */
public record NodeView(
        Map<String, String> labels,
        Map<String, String> annotations,
        Map<String, Long> capacity,
        Map<String, Long> allocatable,
        Map<String, NodeCondition> conditions,
        String containerRuntime) {
    public NodeView {
        labels = Map.copyOf(labels);
        annotations = Map.copyOf(annotations);
        capacity = Map.copyOf(capacity);
        allocatable = Map.copyOf(allocatable);
        conditions = Map.copyOf(conditions);
    }

    static NodeView parse(JsonNode node) {
        JsonNode metadata = node.path("metadata");
        JsonNode status = node.path("status");
        return new NodeView(
                strings(metadata.path("labels")),
                strings(metadata.path("annotations")),
                extendedResources(status.path("capacity")),
                extendedResources(status.path("allocatable")),
                conditions(status.path("conditions")),
                status.path("nodeInfo").path("containerRuntimeVersion").asString(""));
    }

    private static Map<String, NodeCondition> conditions(JsonNode list) {
        Map<String, NodeCondition> conditions = new HashMap<>();
        for (JsonNode condition : list) {
            String type = condition.path("type").asString("");
            conditions.put(
                    type,
                    new NodeCondition(
                            type,
                            condition.path("status").asString("").equals("True"),
                            condition.path("reason").asString(""),
                            condition.path("message").asString(""),
                            instant(condition.path("lastTransitionTime").asString(""))));
        }
        return conditions;
    }

    private static Instant instant(String text) {
        try {
            return Instant.parse(text);
        } catch (DateTimeParseException e) {
            return Instant.EPOCH;
        }
    }

    private static Map<String, String> strings(JsonNode object) {
        Map<String, String> strings = new HashMap<>();
        object.properties()
                .forEach(field -> strings.put(field.getKey(), field.getValue().asString("")));
        return strings;
    }

    private static Map<String, Long> extendedResources(JsonNode object) {
        Map<String, Long> amounts = new HashMap<>();
        strings(object).forEach((resource, text) -> {
            if (resource.contains("/")) {
                Quantity amount = Quantity.parse(resource, text);
                if (amount.whole()) {
                    amounts.put(resource, amount.scaled(0));
                }
            }
        });
        return amounts;
    }
}
