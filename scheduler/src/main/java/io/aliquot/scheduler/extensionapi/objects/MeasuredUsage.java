package io.aliquot.scheduler.extensionapi.objects;

import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuUsage;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.ShareUsage;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.nodeagent.AgentException;
import io.aliquot.scheduler.nodeagent.AgentUsage;
import java.time.Instant;
import java.util.Collection;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;
import org.springframework.stereotype.Component;

/** What the node agents reported last. */
@Component
final class MeasuredUsage implements UsageLookup {
    private static final long MIB = 1L << 20;
    private static final double TENTHS = 10;

    private final AgentUsage agents;

    MeasuredUsage(AgentUsage agents) {
        this.agents = agents;
    }

    @Override
    public void refresh(Collection<String> nodes) {
        agents.refresh(nodes);
    }

    @Override
    public Optional<ShareUsage> ofContainer(String node, PodId pod, String container, String gpu) {
        return agents.usage(node)
                .flatMap(report -> report.find(pod.uid(), container, gpu))
                .map(use -> new ShareUsage(
                        memoryMiB(use),
                        boxed(use.utilizationPercent()),
                        boxed(use.lentPercent()),
                        boxed(use.borrowedPercent()),
                        use.processes(),
                        use.deniedAllocations(),
                        Math.round(use.throttledSeconds() * TENTHS) / TENTHS,
                        use.lastActive().map(Instant::toString).orElse(null)));
    }

    /** Charges and what NVML shows beyond them; null if NVML has no figure. */
    private static @Nullable Long memoryMiB(UsageReport.OfContainer use) {
        return use.unattributedBytes().isEmpty()
                ? null
                : (use.chargedBytes().orElse(0) + use.unattributedBytes().getAsLong()) / MIB;
    }

    @Override
    public Optional<GpuUsage> ofGpu(String node, String gpu) {
        return agents.usage(node)
                .flatMap(report -> report.gpus().stream()
                        .filter(use -> use.gpu().equals(gpu))
                        .findFirst())
                .map(use -> new GpuUsage(
                        mib(use.usedBytes()),
                        mib(use.otherBytes()),
                        boxed(use.utilizationPercent()),
                        boxed(use.temperatureCelsius()),
                        use.powerWatts().isPresent()
                                ? (Integer) (int) Math.round(use.powerWatts().getAsDouble())
                                : null));
    }

    private static @Nullable Long mib(OptionalLong bytes) {
        return bytes.isPresent() ? bytes.getAsLong() / MIB : null;
    }

    private static @Nullable Integer boxed(OptionalInt figure) {
        return figure.isPresent() ? figure.getAsInt() : null;
    }

    @Override
    public Optional<UsageHistory> history(String node, String gpu) {
        try {
            return Optional.of(agents.history(node, gpu));
        } catch (AgentException e) {
            if (e.outcome() == AgentException.Outcome.REFUSED) {
                return Optional.empty();
            }
            throw StatusException.unavailable(String.valueOf(e.getMessage()));
        }
    }
}
