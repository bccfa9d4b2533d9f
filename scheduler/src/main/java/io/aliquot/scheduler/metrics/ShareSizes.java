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
    /** The least memory of a shape, by its cores; for shapes that request MiB. */
    private final long[] leastMiB = new long[ALL + 1];
    /** The least memory of a shape, by its cores; for shapes that request a percentage of the GPU. */
    private final int[] leastPercent = new int[ALL + 1];

    private boolean complete = true;

    ShareSizes() {
        Arrays.fill(leastMiB, NONE);
        Arrays.fill(leastPercent, ALL + 1);
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
        sizes.complete();
        return sizes;
    }

    void add(MemoryRequest memory, int cores) {
        int wanted = Math.max(0, Math.min(ALL, cores));
        if (memory instanceof Mebibytes mebibytes) {
            leastMiB[wanted] = Math.min(leastMiB[wanted], mebibytes.amount());
        } else if (memory instanceof Percentage percentage) {
            leastPercent[wanted] = Math.min(leastPercent[wanted], percentage.percent());
        } else {
            wholeCards = true;
        }
        any = true;
        complete = false;
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
        complete();
        int percent = leastPercent[cores];
        return percent > ALL
                ? leastMiB[cores]
                : Math.min(
                        leastMiB[cores],
                        new Percentage(percent).on(gpu.capacity().vgpuMiB()));
    }

    /** Turns minima for exactly n cores into minima for at most n cores. */
    private void complete() {
        if (!complete) {
            for (int cores = 1; cores <= ALL; cores++) {
                leastMiB[cores] = Math.min(leastMiB[cores], leastMiB[cores - 1]);
                leastPercent[cores] = Math.min(leastPercent[cores], leastPercent[cores - 1]);
            }
            complete = true;
        }
    }
}
