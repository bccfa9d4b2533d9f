package io.aliquot.deviceplugin.usage;

import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.deviceplugin.health.XidTable;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongSupplier;

/*
 * What NVML leaves open. Its event names the GPU and not the process. An error belongs to a container only if, for some
 * seconds before it and until the next sample after it, no other process used that GPU; otherwise it stays an error of the
 * GPU in log and metrics, because blaming the wrong pod is worse than naming none.
 */
/** Finds the containers whose programs caused XID errors of the class application. Thread-safe. */
public final class ApplicationXids implements UsageTracker.SampleListener {
    /** The error may be older than the end of its process and the process older than the error's report. */
    private static final Duration WINDOW = Duration.ofSeconds(10);

    /** Longer than the scheduler may take to ask again after a failed attempt. */
    private static final Duration KEPT = Duration.ofMinutes(2);

    private final LongSupplier nanoTime;

    /** By GPU, when each process or container last used it, by {@code nanoTime}. */
    private final Map<String, Map<User, Long>> users = new HashMap<>();

    /** Errors since the last sample. */
    private final List<ProgramError> fresh = new ArrayList<>();

    private final Deque<Attributed> attributed = new ArrayDeque<>();

    private sealed interface User {}

    private record InContainer(PodContainer container) implements User {}

    /** A process that is in no container with a vGPU, or in one that is not known. */
    private record Outside() implements User {}

    private record ProgramError(String gpu, XidTable.Entry xid, long at) {}

    private record Attributed(UsageReport.ApplicationXid xid, long at) {}

    /**
     * Creates an object without errors.
     *
     * @param nanoTime a clock such as {@link System#nanoTime}
     */
    public ApplicationXids(LongSupplier nanoTime) {
        this.nanoTime = nanoTime;
    }

    /** Takes note of an error of the class application. */
    public synchronized void add(String gpu, XidTable.Entry xid) {
        if (fresh.size() < UsageReport.MOST_XIDS) {
            fresh.add(new ProgramError(gpu, xid, nanoTime.getAsLong()));
        }
    }

    /** Takes note of a sample, and attributes the errors since the last one. */
    @Override
    public synchronized void add(NodeUsage usage) {
        long now = nanoTime.getAsLong();
        usage.gpus().forEach(gpu -> note(gpu, usage.containers(), now));
        users.values().forEach(byUser -> byUser.values().removeIf(last -> now - last > WINDOW.toNanos()));
        users.values().removeIf(Map::isEmpty);
        fresh.removeIf(error -> now - error.at > WINDOW.toNanos()); // NVML did not answer meanwhile
        for (ProgramError error : fresh) {
            Map<User, Long> candidates = users.getOrDefault(error.gpu, Map.of());
            if (candidates.size() == 1 && candidates.keySet().iterator().next() instanceof InContainer(var container)) {
                attributed.addLast(new Attributed(
                        new UsageReport.ApplicationXid(error.gpu, error.xid.number(), error.xid.meaning(), container),
                        now));
            }
        }
        fresh.clear();
        while (attributed.size() > UsageReport.MOST_XIDS) {
            attributed.removeFirst();
        }
    }

    private void note(NodeUsage.OfGpu gpu, List<NodeUsage.OfContainer> containers, long now) {
        Map<User, Long> byUser = users.computeIfAbsent(gpu.nvml().uuid(), uuid -> new HashMap<>());
        int inContainers = 0;
        for (NodeUsage.OfContainer use : containers) {
            if (use.uuid().equals(gpu.nvml().uuid()) && use.processes() > 0) {
                inContainers += use.processes();
                byUser.put(
                        use.podUid().isEmpty()
                                ? new Outside()
                                : new InContainer(use.container().ofPod(use.podUid())),
                        now);
            }
        }
        if (gpu.nvml().processes().size() > inContainers) {
            byUser.put(new Outside(), now);
        }
    }

    /** The attributed errors of the last minutes, oldest first; at most {@link UsageReport#MOST_XIDS}. */
    public synchronized List<UsageReport.ApplicationXid> recent() {
        long now = nanoTime.getAsLong();
        attributed.removeIf(one -> now - one.at > KEPT.toNanos());
        return attributed.stream().map(Attributed::xid).toList();
    }
}
