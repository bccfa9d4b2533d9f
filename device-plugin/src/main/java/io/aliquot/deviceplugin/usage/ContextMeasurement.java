package io.aliquot.deviceplugin.usage;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.deviceplugin.nvml.GpuUsage;
import io.aliquot.deviceplugin.nvml.PhysicalGpu;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/*
 * Why the smallest process. NVML does not tell a context from what is allocated in it, and what a region says of its
 * container must not limit another one. Each process has a context, so the smallest one bounds its size from above, and
 * ever better the more processes come and go. A tenant can make the figure neither smaller than the lower bound nor, while
 * there are others, larger. Too small a figure is made up for within 3 s by what the agent reports as unattributed.
 */
/**
 * How much memory a CUDA context of this node's GPUs takes: the lower bound by architecture, until a smaller process than
 * three times that has been seen; then the memory of the smallest process, in whole steps of 8 MiB. Thread-safe.
 */
public final class ContextMeasurement implements UsageTracker.SampleListener {
    /** A process that starts or ends is seen with a part of its memory. */
    private static final int STEADY_SAMPLES = 3;

    /** What a context takes is at most this many times the lower bound; a process with more has allocated memory. */
    private static final int MOST_TIMES_LEAST = 3;

    /** Fewer changes of the inventory. */
    private static final int STEP_MIB = 8;

    private static final long MIB = 1L << 20;

    /** By GPU and PID, the processes of the last sample; for the thread that samples. */
    private Map<String, Map<Integer, Sighting>> processes = Map.of();

    /** By GPU, in MiB. */
    private final Map<String, Integer> smallest = new ConcurrentHashMap<>();

    /**
     * A process since it was first seen.
     *
     * @param bytes the largest of its memory
     */
    private record Sighting(int samples, long bytes) {}

    /** Takes note of a sample. */
    @Override
    public void add(NodeUsage usage) {
        Map<String, Map<Integer, Sighting>> present = new HashMap<>();
        for (NodeUsage.OfGpu gpu : usage.gpus()) {
            String uuid = gpu.nvml().uuid();
            Map<Integer, Sighting> before = processes.getOrDefault(uuid, Map.of());
            Map<Integer, Sighting> now = new HashMap<>();
            for (GpuUsage.GpuProcess process : gpu.nvml().processes()) {
                process.bytes().ifPresent(bytes -> now.put(process.pid(), next(before.get(process.pid()), bytes)));
            }
            now.values().stream()
                    .filter(process -> process.samples >= STEADY_SAMPLES)
                    .mapToInt(process -> (int) (process.bytes / MIB))
                    .min()
                    .ifPresent(mib -> smallest.merge(uuid, mib, Math::min));
            present.put(uuid, now);
        }
        processes = present;
        smallest.keySet().retainAll(present.keySet());
    }

    private static Sighting next(@Nullable Sighting before, long bytes) {
        return before == null
                ? new Sighting(1, bytes)
                : new Sighting(before.samples + 1, Math.max(before.bytes, bytes));
    }

    /**
     * The memory of a context on a GPU, in MiB; 0 if its architecture is not known.
     *
     * @param detected all GPUs of the node: those of one model are alike
     * @param previous the last inventory, if it was made with the same driver
     */
    public int contextMiB(PhysicalGpu gpu, List<PhysicalGpu> detected, Optional<Inventory> previous) {
        int least = gpu.leastContextMiB();
        IntStream measured = detected.stream()
                .filter(one -> one.model().equals(gpu.model()))
                .flatMap(one -> Stream.ofNullable(smallest.get(one.uuid())))
                .mapToInt(mib -> mib - mib % STEP_MIB);
        IntStream kept = previous.stream()
                .flatMap(inventory -> inventory.gpus().stream())
                .filter(one -> one.model().equals(gpu.model()))
                .mapToInt(Gpu::contextMiB)
                .filter(mib -> mib > least);
        int found = IntStream.concat(measured, kept)
                .filter(mib -> mib <= MOST_TIMES_LEAST * least)
                .min()
                .orElse(least);
        return Math.max(least, found);
    }
}
