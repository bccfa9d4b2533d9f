package io.aliquot.api.nodes;

import static io.aliquot.api.format.FormatException.expect;

import io.aliquot.api.names.Labels;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * The label of the nodes whose GPUs Aliquot shares, the chart value {@code nodeLabel}. Without it running pods stay and no new
 * one comes. Its text is {@code key=value}.
 */
public record NodeLabel(String key, String value) {
    // Kubernetes: Labels and Selectors, Syntax and character set.
    private static final Pattern KEY =
            Pattern.compile("([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?");
    private static final Pattern VALUE = Pattern.compile("[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?");

    public static final NodeLabel DEFAULT =
            new NodeLabel(Labels.GPU, Labels.GPU_ON); // after the patterns, which it needs

    public NodeLabel {
        expect(
                KEY.matcher(key).matches() && VALUE.matcher(value).matches() && !key.equals(Labels.NODE_AGENT),
                "a node label such as " + Labels.GPU + "=" + Labels.GPU_ON,
                key + "=" + value);
    }

    public static NodeLabel parse(String text) {
        int separator = text.indexOf('=');
        return separator < 0
                ? new NodeLabel(text, "")
                : new NodeLabel(text.substring(0, separator), text.substring(separator + 1));
    }

    /** Whether these are the labels of such a node. */
    public boolean isOn(Map<String, String> nodeLabels) {
        return value.equals(nodeLabels.get(key));
    }

    @Override
    public String toString() {
        return key + "=" + value;
    }
}
