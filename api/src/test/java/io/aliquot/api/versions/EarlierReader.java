package io.aliquot.api.versions;

import io.aliquot.api.format.JsonFields;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import tools.jackson.databind.JsonNode;

/**
 * What the earlier version's reader of a text in JSON requires: a file with a line for each field, its path and the regular
 * expression of its value. A {@code ?} after a name says that the field may be absent, {@code []} that it is an array, and
 * {@code *} stands for any name. Other fields are ignored.
 */
final class EarlierReader {
    private record Rule(List<String> path, String value) {}

    private final List<Rule> rules;

    EarlierReader(Path file) {
        try {
            rules = Files.readAllLines(file).stream()
                    .map(line -> line.split(" +", 2))
                    .map(fields -> new Rule(List.of(fields[0].split("\\.", -1)), fields[1]))
                    .toList();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Why the earlier version would refuse the text, a line for each field; empty if it reads it. */
    List<String> refusals(String text) {
        JsonNode root = JsonFields.JSON.readTree(text);
        var refusals = new ArrayList<String>();
        rules.forEach(rule -> check(root, rule, 0, refusals));
        return refusals;
    }

    private static void check(JsonNode node, Rule rule, int at, List<String> refusals) {
        if (at == rule.path().size()) {
            String value = node.isString() ? node.stringValue() : node.toString();
            if (!value.matches("(?s:" + rule.value() + ")")) {
                refusals.add(String.join(".", rule.path()) + ": expected " + rule.value() + ", found " + value);
            }
            return;
        }
        String step = rule.path().get(at);
        String name = step.replaceAll("[?\\[\\]]", "");
        if (name.equals("*")) {
            node.forEach(value -> check(value, rule, at + 1, refusals));
            return;
        }
        JsonNode value = node.get(name);
        if (value == null) {
            if (!step.contains("?")) {
                refusals.add(String.join(".", rule.path()) + ": expected it, found none");
            }
        } else if (!step.endsWith("[]")) {
            check(value, rule, at + 1, refusals);
        } else if (value.isArray()) {
            value.forEach(element -> check(element, rule, at + 1, refusals));
        } else {
            refusals.add(String.join(".", rule.path()) + ": expected an array, found " + value);
        }
    }
}
