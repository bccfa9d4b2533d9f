package io.aliquot.deviceplugin.arbiter;

import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.deviceplugin.attribution.Limits;
import io.aliquot.deviceplugin.usage.NodeUsage;
import io.aliquot.deviceplugin.usage.UsageTracker;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Tells the arbiter once a second which containers use which GPU, with the limits that the scheduler has said and the GPU
 * time that NVML has seen. A container whose limits are not known yet is left out: it keeps its own cores and borrows
 * nothing.
 *
 * <p>For one thread.
 */
public final class ArbiterFeed implements UsageTracker.SampleListener {
    private static final double PERCENT = 100;

    private final Supplier<Limits> latestLimits;
    private final Consumer<String> arbiter;

    /**
     * Tells nothing yet.
     *
     * @param latestLimits what the scheduler said last of this node
     * @param arbiter takes a list, see {@link ArbiterProcess#tell}
     */
    public ArbiterFeed(Supplier<Limits> latestLimits, Consumer<String> arbiter) {
        this.latestLimits = latestLimits;
        this.arbiter = arbiter;
    }

    @Override
    public void add(NodeUsage usage) {
        Limits limits = latestLimits.get();
        var lines = new StringBuilder();
        for (NodeUsage.OfContainer container : usage.containers()) {
            Optional<Limit> limit = container.limit(limits);
            if (limit.isPresent() && container.slot().isPresent()) {
                lines.append(String.join(
                                " ",
                                container.slot().get(),
                                container.uuid(),
                                Integer.toString(limit.get().cores()),
                                limit.get().policy().print(),
                                limit.get().priority().print(),
                                percent(container.utilization())))
                        .append('\n');
            }
        }
        arbiter.accept(lines.toString());
    }

    private static String percent(OptionalDouble part) {
        return part.isPresent() ? String.format(Locale.ROOT, "%.1f", part.getAsDouble() * PERCENT) : "-";
    }
}
