package io.aliquot.scheduler.ledger;

import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.GpuAmount;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A container's share: what it may use of its node's GPUs. What a pod holds is {@link QuotaAmount#held} of all of them, and
 * {@link #perGpu} of each GPU, since its containers do not all run at the same time.
 *
 * @param ended whether the container has ended and its pod does not start it again
 */
public record ContainerShare(String container, ContainerKind kind, Vgpus vgpus, boolean ended) {
    public ContainerShare(String container, ContainerKind kind, Vgpus vgpus) {
        this(container, kind, vgpus, false);
    }

    /**
     * What a pod holds of each GPU, by UUID.
     *
     * @param shares in the order of the containers' declaration, init containers first
     */
    public static Map<String, GpuAmount> perGpu(List<ContainerShare> shares) {
        var timed = new LinkedHashMap<String, List<GpuAmount.Timed>>();
        for (ContainerShare share : shares) {
            for (Vgpu vgpu : share.vgpus().list()) {
                timed.computeIfAbsent(vgpu.uuid(), uuid -> new ArrayList<>(1))
                        .add(new GpuAmount.Timed(share.kind(), GpuAmount.of(vgpu)));
            }
        }
        var perGpu = new HashMap<String, GpuAmount>();
        timed.forEach((uuid, amounts) -> perGpu.put(uuid, GpuAmount.peak(amounts)));
        return Map.copyOf(perGpu);
    }

    /** The larger of two amounts for each GPU. */
    static Map<String, GpuAmount> larger(Map<String, GpuAmount> one, Map<String, GpuAmount> other) {
        var larger = new HashMap<String, GpuAmount>(one);
        other.forEach((uuid, amount) -> larger.merge(
                uuid,
                amount,
                (a, b) -> new GpuAmount(
                        Math.max(a.memoryMiB(), b.memoryMiB()),
                        Math.max(a.cores(), b.cores()),
                        Math.max(a.slots(), b.slots()),
                        a.exclusive() || b.exclusive())));
        return Map.copyOf(larger);
    }
}
