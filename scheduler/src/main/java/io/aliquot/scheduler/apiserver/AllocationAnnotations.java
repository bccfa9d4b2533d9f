package io.aliquot.scheduler.apiserver;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Fence;
import io.aliquot.api.names.Vgpus;
import io.aliquot.scheduler.placement.GpuAmount;
import java.util.Collection;
import java.util.Map;
import java.util.TreeMap;

/** The annotations that record the allocation of a pod and the fence of the leader that made it. */
public final class AllocationAnnotations {
    /** A whole card's vGPU says 0 cores, because nothing limits them. */
    private static final int WHOLE_CARD_CORES = 100;

    private AllocationAnnotations() {}

    /**
     * Returns the annotations.
     *
     * @param containers the vGPUs by container name
     * @param perGpu what they hold at once of each GPU; the totals are the sums
     */
    public static Map<String, String> annotations(
            String fenceKey, Fence fence, Map<String, Vgpus> containers, Collection<GpuAmount> perGpu) {
        var annotations = new TreeMap<String, String>();
        annotations.put(fenceKey, fence.print());
        containers.forEach((container, vgpus) -> annotations.put(Annotations.vgpu(container), vgpus.print()));
        if (!perGpu.isEmpty()) {
            long memoryMiB = perGpu.stream().mapToLong(GpuAmount::memoryMiB).sum();
            int cores = perGpu.stream()
                    .mapToInt(amount -> amount.exclusive() ? WHOLE_CARD_CORES : amount.cores())
                    .sum();
            annotations.put(Annotations.TOTAL_MEMORY_MIB, Long.toString(memoryMiB));
            annotations.put(Annotations.TOTAL_CORES, Integer.toString(cores));
        }
        return annotations;
    }
}
