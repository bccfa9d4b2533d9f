package io.aliquot.scheduler.ledger;

import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.List;
import java.util.function.Function;
import java.util.function.ToIntFunction;

/**
 * What pods hold of all GPUs together, and count for in a quota. A pod holds what Kubernetes' quotas count of its limits:
 * the larger of its app containers and sidecars together, and of each init container with the sidecars declared before it
 * (k8s.io/component-helpers 1.35, resource/helpers.go, PodLimits).
 *
 * @param memoryMiB device memory of all vGPUs, in MiB
 * @param cores compute of all vGPUs, in percent of one GPU
 * @param vgpus number of vGPUs
 */
public record QuotaAmount(long memoryMiB, long cores, long vgpus) {
    public static final QuotaAmount NONE = new QuotaAmount(0, 0, 0);

    private static final int WHOLE_CARD_CORES = 100;

    /**
     * What a pod with these shares holds until it ends, as every display and bill shows it.
     *
     * @param shares in the order of the containers' declaration, init containers first
     */
    public static QuotaAmount held(List<ContainerShare> shares) {
        return of(shares, Vgpu::cores);
    }

    /** What quotas count of these shares: what the pod holds, and all cores where it may use all. */
    public static QuotaAmount of(List<ContainerShare> shares) {
        return of(shares, vgpu -> counted(vgpu.cores(), vgpu.policy()));
    }

    private static QuotaAmount of(List<ContainerShare> shares, ToIntFunction<Vgpu> cores) {
        return shares.isEmpty() ? NONE : peak(shares, ContainerShare::kind, share -> sum(share, cores));
    }

    private static GpuAmount sum(ContainerShare share, ToIntFunction<Vgpu> coresOf) {
        long memoryMiB = 0;
        int cores = 0;
        List<Vgpu> vgpus = share.vgpus().list();
        for (Vgpu vgpu : vgpus) {
            memoryMiB += vgpu.memoryMiB();
            cores += vgpu.exclusive() ? WHOLE_CARD_CORES : coresOf.applyAsInt(vgpu);
        }
        return new GpuAmount(memoryMiB, cores, vgpus.size(), false);
    }

    /** A share without cores takes all that it can get, unless it only borrows. */
    private static int counted(int cores, CorePolicy policy) {
        return cores == 0 && policy != CorePolicy.ELASTIC ? WHOLE_CARD_CORES : cores;
    }

    /**
     * What a pod counts for if all its vGPUs are on GPUs of this size.
     *
     * @param cardMiB memory of a GPU that one vGPU can get
     * @param coresCount whether the GPUs' cores are shared; if not, a share has none
     */
    public static QuotaAmount of(PodGpuRequest pod, int cardMiB, boolean coresCount) {
        return peak(pod.containers(), ContainerGpuRequest::kind, container -> {
            GpuRequest request = container.request();
            CorePolicy policy = pod.corePolicy();
            int cores = request.exclusive()
                    ? WHOLE_CARD_CORES
                    : counted(coresCount || policy != CorePolicy.ELASTIC ? request.cores() : 0, policy);
            return new GpuAmount(
                    (long) request.vgpus() * request.memory().on(cardMiB),
                    request.vgpus() * cores,
                    request.vgpus(),
                    false);
        });
    }

    private static <C> QuotaAmount peak(
            List<C> containers, Function<C, ContainerKind> kind, Function<C, GpuAmount> amount) {
        GpuAmount peak = GpuAmount.peak(containers.stream()
                .map(container -> new GpuAmount.Timed(kind.apply(container), amount.apply(container)))
                .toList());
        return new QuotaAmount(peak.memoryMiB(), peak.cores(), peak.slots());
    }

    QuotaAmount plus(QuotaAmount other) {
        return new QuotaAmount(memoryMiB + other.memoryMiB, cores + other.cores, vgpus + other.vgpus);
    }

    QuotaAmount minus(QuotaAmount other) {
        return new QuotaAmount(memoryMiB - other.memoryMiB, cores - other.cores, vgpus - other.vgpus);
    }

    /** The larger one of each amount. */
    QuotaAmount max(QuotaAmount other) {
        return new QuotaAmount(
                Math.max(memoryMiB, other.memoryMiB), Math.max(cores, other.cores), Math.max(vgpus, other.vgpus));
    }
}
