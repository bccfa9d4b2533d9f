package io.aliquot.scheduler.metrics;

import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.api.pods.MemoryRequest.Mebibytes;
import io.aliquot.api.pods.MemoryRequest.Percentage;
import io.aliquot.api.pods.MemoryRequest.WholeCard;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuInfo;
import java.util.Arrays;
import java.util.Collection;

/**
 * The shapes of vGPU in the cluster: memory and cores of those that run and of those that pending pods request. Free
 * memory is stranded if no such shape fits into it.
 */
public final class ShareSizes {
    private static final int ALL = 100;
    private static final long NONE = Long.MAX_VALUE;

    private boolean any;
    private boolean wholeCards;
    /** The least memory of the shapes with at most so many cores that request MiB. */
    private final long[] leastMiB = new long[ALL + 1];
    /** The same of those that request a percentage of the GPU. */
    private final long[] leastPercent = new long[ALL + 1];

    ShareSizes() {
        Arrays.fill(leastMiB, NONE);
        Arrays.fill(leastPercent, NONE);
    }

    /** The shapes that the pods on these nodes hold, and those that pending pods request. */
    public static ShareSizes of(Collection<NodeView> views, PendingPods pending) {
        var sizes = new ShareSizes();
        for (NodeView view : views) {
            for (Holding holding : view.holdings()) {
                holding.shares().forEach(share -> {
                    for (Vgpu vgpu : share.vgpus().list()) {
                        sizes.add(vgpu.exclusive() ? new WholeCard() : new Mebibytes(vgpu.memoryMiB()), vgpu.cores());
                    }
                });
            }
        }
        pending.allPending().forEach(waiting -> {
            for (ContainerGpuRequest container : waiting.kind().request().containers()) {
                sizes.add(container.request().memory(), container.request().cores());
            }
        });
        return sizes;
    }

    void add(MemoryRequest memory, int cores) {
        any = true;
        int wanted = Math.max(0, Math.min(ALL, cores));
        switch (memory) {
            case Mebibytes(int amount) -> lower(leastMiB, wanted, amount);
            case Percentage(int percent) -> lower(leastPercent, wanted, percent);
            case WholeCard() -> wholeCards = true;
        }
    }

    private static void lower(long[] least, int cores, long amount) {
        for (int most = cores; most <= ALL && amount < least[most]; most++) {
            least[most] = amount;
        }
    }

    /** Free memory in MiB that no shape fits into; all free memory if the GPU takes no vGPU. */
    public long stranded(GpuInfo gpu) {
        GpuAmount taken = gpu.allocated();
        long free = Math.max(0, gpu.capacity().memoryMiB() - taken.memoryMiB());
        int cores = gpu.capacity().cores() - taken.cores();
        boolean closed = !gpu.capacity().schedulable() || taken.exclusive();
        if (closed || taken.slots() >= gpu.capacity().slots() || cores < 0) {
            return free;
        }
        // Without any shape nothing is stranded.
        boolean fits = !any
                || (wholeCards && taken.slots() == 0)
                || least(Math.min(ALL, cores), gpu)
                        <= Math.min(free, gpu.capacity().vgpuMiB());
        return fits ? 0 : free;
    }

    /** The least memory of the shapes with at most these cores, whole cards excluded. */
    private long least(int cores, GpuInfo gpu) {
        long percent = leastPercent[cores];
        return percent == NONE
                ? leastMiB[cores]
                : Math.min(
                        leastMiB[cores],
                        new Percentage((int) percent).on(gpu.capacity().vgpuMiB()));
    }
}
