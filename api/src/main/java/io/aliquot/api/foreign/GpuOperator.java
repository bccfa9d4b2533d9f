package io.aliquot.api.foreign;

import io.aliquot.api.names.Labels;
import java.util.Comparator;
import java.util.Map;
import java.util.Optional;

/** NVIDIA's GPU Operator, by what it writes to nodes. */
public final class GpuOperator {
    /** Prefix of the labels by which the Operator's parts select nodes (NVIDIA/gpu-operator, controllers/state_manager.go). */
    public static final String DEPLOY = "nvidia.com/gpu.deploy.";

    private GpuOperator() {}

    /**
     * The label that shows that the Operator handles a node; empty if it does not. The Operator writes all its labels at
     * once. {@link Labels#OPERATOR_PLUGIN} and {@link Labels#OPERATOR_DRA_DRIVER} with the value that keeps those parts off
     * are no sign: they are set for Aliquot, also before there is an Operator.
     */
    public static Optional<String> handles(Map<String, String> nodeLabels) {
        return nodeLabels.entrySet().stream()
                .filter(label -> label.getKey().startsWith(DEPLOY) && !isOfAliquot(label))
                .map(Map.Entry::getKey)
                .min(Comparator.naturalOrder());
    }

    private static boolean isOfAliquot(Map.Entry<String, String> label) {
        return (label.getKey().equals(Labels.OPERATOR_PLUGIN) || label.getKey().equals(Labels.OPERATOR_DRA_DRIVER))
                && label.getValue().equals(Labels.OPERATOR_PLUGIN_OFF);
    }
}
