package io.aliquot.deviceplugin.inventory;

import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.deviceplugin.node.NodeCondition;
import java.time.Instant;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** The Node's condition {@value #TYPE}: whether all its GPUs are healthy, and else which are not and why. */
final class GpusHealthyCondition {
    static final String TYPE = "AliquotGPUsHealthy";

    private static final int LONGEST_MESSAGE = 1000;

    private GpusHealthyCondition() {}

    /** The condition of an inventory, if the Node's says something else. */
    static Optional<NodeCondition> differing(Inventory inventory, @Nullable NodeCondition present, Instant now) {
        NodeCondition wanted = of(inventory, now);
        if (present == null) {
            return Optional.of(wanted);
        }
        if (present.says(wanted)) {
            return Optional.empty();
        }
        return Optional.of(present.status() == wanted.status() ? of(inventory, present.since()) : wanted);
    }

    private static NodeCondition of(Inventory inventory, Instant since) {
        long healthy =
                inventory.gpus().stream().filter(gpu -> gpu.health().healthy()).count();
        boolean all = healthy == inventory.gpus().size();
        var message = new StringBuilder()
                .append(healthy)
                .append(" of ")
                .append(inventory.gpus().size())
                .append(" GPUs are healthy");
        inventory
                .gpus()
                .forEach(gpu -> gpu.health()
                        .unhealthy()
                        .map(GpuHealth.Unhealthy::reason)
                        .ifPresent(reason -> message.append("; ")
                                .append(gpu.uuid())
                                .append(" (")
                                .append(gpu.model())
                                .append("): ")
                                .append(reason)));
        if (message.length() > LONGEST_MESSAGE) {
            message.setLength(LONGEST_MESSAGE - 1);
            message.append('…');
        }
        return new NodeCondition(TYPE, all, all ? "GPUsHealthy" : "GPUUnhealthy", message.toString(), since);
    }
}
