package io.aliquot.deviceplugin.node;

import io.aliquot.api.foreign.GpuOperator;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.Inventory;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * Whether the node is marked for an upgrade of NVIDIA's driver, during which no process may use the driver: the driver can
 * be unloaded only then.
 */
public final class DriverRelease {
    /** On a node, by the GPU Operator's upgrade controller. */
    private static final String STATE = "nvidia.com/gpu-driver-upgrade-state";

    /**
     * The states from which on the driver is about to be unloaded, and in which it is
     * (github.com/NVIDIA/k8s-operator-libs, pkg/upgrade/consts.go). In the states before them the Operator waits for jobs
     * on a node that it has cordoned, in the states after them the new driver is loaded. A failed upgrade may still be
     * about to unload the driver.
     */
    private static final Set<String> ACTIVE = Set.of(
            "pod-deletion-required",
            "drain-required",
            "node-maintenance-required",
            "post-maintenance-required",
            "pod-restart-required",
            "upgrade-failed");

    /** In labels of {@link GpuOperator#DEPLOY}, by the GPU Operator's driver manager, for parts that use the driver. */
    private static final String PAUSED = "paused-for-driver-upgrade";

    private DriverRelease() {}

    /** Why the driver must not be used now, as the inventory's conflict; empty if it may be used. */
    public static Optional<String> of(NodeView node) {
        String state = node.labels().getOrDefault(STATE, "");
        if (ACTIVE.contains(state)) {
            return Optional.of(Inventory.DRIVER_UPGRADE + "the node has the label " + STATE + "=" + state);
        }
        if (node.annotations().getOrDefault(Annotations.RELEASE_DRIVER, "").equals("true")) {
            return Optional.of(
                    Inventory.DRIVER_UPGRADE + "the node has the annotation " + Annotations.RELEASE_DRIVER + "=true");
        }
        return node.labels().entrySet().stream()
                .filter(label -> label.getKey().startsWith(GpuOperator.DEPLOY)
                        && label.getValue().contains(PAUSED))
                .map(Map.Entry::getKey)
                .min(String::compareTo)
                .map(label -> Inventory.DRIVER_UPGRADE + "the node's label " + label + " says " + PAUSED);
    }

    /** Whether a conflict of an inventory is this one. */
    public static boolean isCauseOf(String conflict) {
        return conflict.startsWith(Inventory.DRIVER_UPGRADE);
    }
}
