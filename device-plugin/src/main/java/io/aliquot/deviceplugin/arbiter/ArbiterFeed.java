package io.aliquot.deviceplugin.arbiter;

import io.aliquot.api.usage.NodeAllocation;
import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.deviceplugin.usage.ContainerName;
import io.aliquot.deviceplugin.usage.NodeUsage;
import io.aliquot.deviceplugin.usage.UsageTracker;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Tells the arbiter once a second which containers use which GPU, with the limits that the scheduler has said and the GPU
 * time that NVML has seen. A container whose limits are not known yet is left out: it keeps its own cores and borrows
 * nothing.
 */
public final class ArbiterFeed implements UsageTracker.SampleListener {
    private static final double PERCENT = 100;

    private final Supplier<Optional<NodeAllocation>> allocation;
    private final Consumer<String> arbiter;

    private record Key(ContainerName container, String gpu) {}

    /**
     * Tells nothing yet.
     *
     * @param allocation what the scheduler said last of this node; empty before
     * @param arbiter takes a list, see {@link ArbiterProcess#tell}
     */
    public ArbiterFeed(Supplier<Optional<NodeAllocation>> allocation, Consumer<String> arbiter) {
        this.allocation = allocation;
        this.arbiter = arbiter;
    }

    @Override
    public void add(NodeUsage usage) {
        Map<Key, Limit> limits = limits();
        var lines = new StringBuilder();
        for (NodeUsage.OfContainer container : usage.containers()) {
            Limit limit = limits.get(new Key(container.container(), container.uuid()));
            if (limit != null && container.slot().isPresent() && isOfSamePod(limit, container)) {
                lines.append(String.join(
                                " ",
                                container.slot().get(),
                                container.uuid(),
                                Integer.toString(limit.cores()),
                                limit.policy().print(),
                                limit.priority().print(),
                                percent(container.utilization())))
                        .append('\n');
            }
        }
        arbiter.accept(lines.toString());
    }

    /** A pod's successor may have its name. */
    private static boolean isOfSamePod(Limit limit, NodeUsage.OfContainer container) {
        return container.podUid().isEmpty()
                || container.podUid().equals(limit.container().uid());
    }

    private static String percent(OptionalDouble part) {
        return part.isPresent() ? String.format(Locale.ROOT, "%.1f", part.getAsDouble() * PERCENT) : "-";
    }

    private Map<Key, Limit> limits() {
        var limits = new HashMap<Key, Limit>();
        allocation
                .get()
                .ifPresent(said -> said.limits()
                        .forEach(limit -> limits.put(
                                new Key(
                                        new ContainerName(
                                                limit.container().namespace(),
                                                limit.container().pod(),
                                                limit.container().container()),
                                        limit.gpu()),
                                limit)));
        return limits;
    }
}
