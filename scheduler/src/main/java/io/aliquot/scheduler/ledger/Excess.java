package io.aliquot.scheduler.ledger;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.api.usage.UsageReport.OfContainer;
import io.aliquot.scheduler.placement.GpuAmount;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;

/*
 * A resize takes effect on the next allocation and takes no memory away. So the former amount counts until the node's agent
 * has measured that each container of the pod uses no more than its limit. A scheduler that starts later does not know the
 * former amount; for it, what the agent has measured beyond the limit counts. What a container charges itself does not: it
 * could take capacity from others by writing large charges into its region.
 */
/**
 * Memory that counts for a pod beyond its limits, because it may use it.
 *
 * @param perGpu all that counts of these GPUs, by UUID; memory alone
 * @param shrunkAt when a resize made the pod's share smaller, in nanoseconds of the ledger's clock; empty without one
 */
record Excess(Map<String, GpuAmount> perGpu, OptionalLong shrunkAt) {
    static final Excess NONE = new Excess(Map.of(), OptionalLong.empty());

    /**
     * How long after a resize an agent must be asked: the limit file of a container follows within a second or two, an
     * agent's sample is at most 10 s old, and its figure is the smallest of the 10 s before (RecentUsage).
     */
    static final Duration SETTLES = Duration.ofSeconds(22);

    /** Of what the driver itself takes before the shim knows of it. */
    private static final long TOLERANCE_MIB = 64;

    private static final long TOLERANCE_FRACTION = 50; // 2 %
    private static final long MIB = 1L << 20;
    private static final OptionalLong NOTHING = OptionalLong.of(0);

    Excess {
        perGpu = Map.copyOf(perGpu);
    }

    /** After the pod was reported with other shares. */
    Excess after(List<ContainerShare> before, List<ContainerShare> now, long nanoTime) {
        if (before.equals(now)) {
            return this;
        }
        Map<String, GpuAmount> held = ContainerShare.perGpu(before);
        Map<String, GpuAmount> counted = ContainerShare.perGpu(now);
        boolean shrinks = !beyond(held, counted).isEmpty();
        Map<String, GpuAmount> more = beyond(ContainerShare.larger(held, perGpu), counted);
        return more.isEmpty() ? NONE : new Excess(more, shrinks ? OptionalLong.of(nanoTime) : shrunkAt);
    }

    /**
     * After the pod's use was measured.
     *
     * @param uses of the pod's containers; a container without one uses nothing
     * @param askedAt when the agent was asked
     */
    Excess measured(List<ContainerShare> shares, List<OfContainer> uses, long askedAt) {
        if (perGpu.isEmpty() && uses.isEmpty()) {
            return this;
        }
        boolean fits = true;
        var raised = new ArrayList<ContainerShare>();
        for (ContainerShare share : shares) {
            var vgpus = new ArrayList<Vgpu>();
            for (Vgpu vgpu : share.vgpus().list()) {
                long limit = vgpu.memoryMiB();
                OptionalLong bytes = vgpu.exclusive() ? NOTHING : usedBytes(uses, share.container(), vgpu.uuid());
                long used = bytes.orElse(0);
                fits &= bytes.isPresent() && used <= limit * MIB;
                boolean exceeds = used / MIB > limit + Math.max(TOLERANCE_MIB, limit / TOLERANCE_FRACTION);
                vgpus.add(exceeds ? withMemory(vgpu, used / MIB) : vgpu);
            }
            raised.add(new ContainerShare(share.container(), share.kind(), new Vgpus(vgpus)));
        }
        if (fits) {
            return shrunkAt.isEmpty() || askedAt - shrunkAt.getAsLong() >= SETTLES.toNanos() ? NONE : this;
        }
        Map<String, GpuAmount> most = ContainerShare.larger(ContainerShare.perGpu(raised), perGpu);
        return new Excess(beyond(most, ContainerShare.perGpu(shares)), shrunkAt);
    }

    /** By NVML; empty if there is no figure. */
    private static OptionalLong usedBytes(List<OfContainer> uses, String container, String gpu) {
        return uses.stream()
                .filter(use -> use.container().container().equals(container)
                        && use.gpu().equals(gpu))
                .map(OfContainer::sustainedBytes)
                .findFirst()
                .orElse(NOTHING);
    }

    private static Vgpu withMemory(Vgpu vgpu, long memoryMiB) {
        return new Vgpu(
                vgpu.uuid(),
                (int) Math.min(memoryMiB, Gpu.LARGEST_MIB),
                vgpu.cores(),
                vgpu.policy(),
                vgpu.priority(),
                vgpu.contextMiB(),
                vgpu.exclusive());
    }

    /** The memory of those GPUs of which the first is more. */
    private static Map<String, GpuAmount> beyond(Map<String, GpuAmount> amounts, Map<String, GpuAmount> others) {
        var more = new HashMap<String, GpuAmount>();
        amounts.forEach((gpu, amount) -> {
            if (amount.memoryMiB() > others.getOrDefault(gpu, GpuAmount.NOTHING).memoryMiB()) {
                more.put(gpu, new GpuAmount(amount.memoryMiB(), 0, 0, false));
            }
        });
        return more;
    }
}
