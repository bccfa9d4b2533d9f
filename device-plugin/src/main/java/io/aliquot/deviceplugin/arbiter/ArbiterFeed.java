package io.aliquot.deviceplugin.arbiter;

import io.aliquot.api.names.CorePolicy;
import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.api.usage.UsageReport.Unlimited;
import io.aliquot.deviceplugin.usage.ContainerName;
import io.aliquot.deviceplugin.usage.Limits;
import io.aliquot.deviceplugin.usage.NodeUsage;
import io.aliquot.deviceplugin.usage.UsageTracker;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Tells the arbiter once a second which containers use which GPU, with the limits that the scheduler has said and the GPU
 * time that NVML has seen. A container whose limits are not known yet is left out: it keeps its own cores and borrows
 * nothing. One with GPU time that the shim has not counted borrows nothing, either.
 *
 * <p>For one thread.
 */
public final class ArbiterFeed implements UsageTracker.SampleListener {
    private static final double PERCENT = 100;
    private static final int WHOLE = 100;

    private final Supplier<Limits> latestLimits;
    private final Consumer<String> arbiter;
    private Limits limits = Limits.NONE;

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
        limits = latestLimits.get();
        var lines = new StringBuilder();
        for (NodeUsage.OfContainer container : usage.containers()) {
            Optional<Limit> limit = limits.find(container);
            boolean mayBorrow = container.unlimited().stream().noneMatch(Unlimited.UncountedTime.class::isInstance);
            if (limit.isPresent()
                    && (mayBorrow || limit.get().cores() > 0) // without cores a fixed one has no limit
                    && container.slot().isPresent()) {
                lines.append(String.join(
                                " ",
                                container.slot().get(),
                                container.uuid(),
                                Integer.toString(limit.get().cores()),
                                (mayBorrow ? limit.get().policy() : CorePolicy.FIXED).print(),
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

    /** Whether the shim limits the container to less than the GPU's time, by the allocation at the last sample. */
    public boolean isLimited(ContainerName container, String gpu) {
        OptionalInt cores = limits.find(container, gpu).map(Limit::ownCores).orElse(OptionalInt.empty());
        return cores.isPresent() && cores.getAsInt() < WHOLE;
    }
}
