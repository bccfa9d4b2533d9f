package io.aliquot.scheduler.ledger;

import io.aliquot.api.Vgpu;
import io.aliquot.api.Vgpus;
import io.aliquot.scheduler.placement.Amount;
import io.aliquot.scheduler.placement.ContainerKind;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What one container of a pod holds. */
public record Share(String container, ContainerKind kind, Vgpus vgpus) {
    /**
     * What a pod holds of each GPU, by UUID.
     *
     * @param shares in the order of the containers' declaration, init containers first
     */
    static Map<String, Amount> perGpu(List<Share> shares) {
        var timed = new LinkedHashMap<String, List<Amount.Timed>>();
        for (Share share : shares) {
            for (Vgpu vgpu : share.vgpus().list()) {
                timed.computeIfAbsent(vgpu.uuid(), uuid -> new ArrayList<>(1))
                        .add(new Amount.Timed(share.kind(), Amount.of(vgpu)));
            }
        }
        var perGpu = new HashMap<String, Amount>();
        timed.forEach((uuid, amounts) -> perGpu.put(uuid, Amount.peak(amounts)));
        return Map.copyOf(perGpu);
    }

    /** Of each GPU the larger of two amounts. */
    static Map<String, Amount> larger(Map<String, Amount> one, Map<String, Amount> other) {
        var larger = new HashMap<String, Amount>(one);
        other.forEach((uuid, amount) -> larger.merge(
                uuid,
                amount,
                (a, b) -> new Amount(
                        Math.max(a.memoryMiB(), b.memoryMiB()),
                        Math.max(a.cores(), b.cores()),
                        Math.max(a.slots(), b.slots()),
                        a.exclusive() || b.exclusive())));
        return Map.copyOf(larger);
    }
}
