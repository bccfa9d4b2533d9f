package io.aliquot.scheduler.placement;

import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.scheduler.placement.Feasibility.Fits;
import io.aliquot.scheduler.placement.Feasibility.Refused;
import io.aliquot.scheduler.placement.RefusalReasons.Reason;
import java.util.List;
import java.util.Map;

/*
 * The entry point for selecting GPUs. Nearly every pod requests one vGPU: it fits if and only if some GPU holds that
 * vGPU. For such a pod the selection is a loop over the GPUs that allocates nothing but its result. PodGpuSelector
 * handles all other pods; it uses ContainerGpuSelector for each container.
 */
/** Selects a pod's GPUs among those of one node. Thread-safe: pure functions of their arguments. */
public final class GpuSelector {
    private GpuSelector() {}

    /**
     * Answers whether a pod fits, and how full the node's GPUs would then be. A pod fits if and only if {@link #select}
     * selects GPUs for it. The fullness can differ from that of {@link #select} for a container with several vGPUs on a
     * node with GPUs of different sizes, because this check ignores links.
     *
     * @param gpus every GPU of the node, in the order of its inventory
     * @param policy which GPUs to prefer among those that hold a container
     */
    public static Feasibility feasible(PodGpuRequest pod, List<GpuInfo> gpus, PlacementPolicy policy) {
        if (!pod.requestsOneVgpu()) {
            return new PodGpuSelector(pod, gpus, policy, pod.containers().size() != 1).quickCheck();
        }
        int best = bestGpu(pod, gpus, policy);
        return best < 0 ? refuse(pod, gpus) : new Fits(fullness(pod, gpus, best));
    }

    /**
     * Selects a pod's GPUs, or refuses the node with a reason.
     *
     * @param gpus every GPU of the node, in the order of its inventory
     * @param policy which GPUs to prefer among those that hold a container
     */
    public static GpuSelection select(PodGpuRequest pod, List<GpuInfo> gpus, PlacementPolicy policy) {
        if (!pod.requestsOneVgpu()) {
            return new PodGpuSelector(pod, gpus, policy, true).select();
        }
        int best = bestGpu(pod, gpus, policy);
        return best < 0 ? refuse(pod, gpus) : selectGpu(best, pod, gpus);
    }

    /**
     * Selects a given GPU for a pod that requests one vGPU.
     *
     * @param gpu index in {@code gpus} of a GPU that holds the vGPU
     */
    public static GpuSelection.Selected selectGpu(int gpu, PodGpuRequest pod, List<GpuInfo> gpus) {
        ContainerGpuRequest container = pod.containers().get(0);
        Vgpu vgpu = vgpu(pod, container.request(), gpus.get(gpu).capacity);
        return new GpuSelection.Selected(
                Map.of(container.name(), new Vgpus(List.of(vgpu))),
                Map.of(vgpu.uuid(), GpuAmount.of(vgpu)),
                fullness(pod, gpus, gpu));
    }

    /** The index of the GPU that the policy rates highest for a pod's only vGPU; -1 if no GPU holds it. */
    private static int bestGpu(PodGpuRequest pod, List<GpuInfo> gpus, PlacementPolicy policy) {
        int best = -1;
        long bestRating = Long.MIN_VALUE;
        for (int gpu = 0; gpu < gpus.size(); gpu++) {
            GpuInfo free = gpus.get(gpu);
            long rating = policy.rateGpu(free.fullness, free.capacity);
            if (rating > bestRating && holds(pod, free)) {
                best = gpu;
                bestRating = rating;
            }
        }
        return best;
    }

    /** The mean fullness of the node's GPUs, 0 to 1, after a GPU got the pod's only vGPU. */
    private static double fullness(PodGpuRequest pod, List<GpuInfo> gpus, int gpu) {
        long sum = 0;
        for (int i = 0; i < gpus.size(); i++) {
            sum += gpus.get(i).fullness;
        }
        GpuInfo free = gpus.get(gpu);
        GpuRequest request = pod.containers().get(0).request();
        sum += free.fullnessWith(
                        free.capacity.memoryMiB(request),
                        free.capacity.cores(request),
                        free.capacity.givesWhole(request))
                - free.fullness;
        return (double) sum / GpuInfo.FULL / gpus.size();
    }

    /** The vGPU that a container gets on a GPU. */
    static Vgpu vgpu(PodGpuRequest pod, GpuRequest request, GpuCapacity capacity) {
        return new Vgpu(
                capacity.gpu.uuid(),
                capacity.memoryMiB(request),
                capacity.cores(request),
                pod.corePolicy(),
                pod.priority(),
                capacity.gpu.contextMiB(),
                capacity.givesWhole(request));
    }

    /** Whether a GPU would hold a vGPU if the GPU were empty. */
    public static boolean holdsWhenEmpty(PodGpuRequest pod, GpuRequest request, GpuCapacity capacity) {
        return capacity.schedulable
                && capacity.admits(request)
                && capacity.memoryMiB(request) <= capacity.vgpuMiB
                && capacity.cores(request) <= capacity.cores
                && pod.takes(capacity.gpu);
    }

    /** Whether a GPU holds the only vGPU of a pod. */
    static boolean holds(PodGpuRequest pod, GpuInfo free) {
        return holds(pod, pod.containers().get(0).request(), free);
    }

    /** Whether a GPU holds one vGPU of a container, with no other vGPU of the pod on that GPU. */
    public static boolean holds(PodGpuRequest pod, GpuRequest request, GpuInfo free) {
        GpuCapacity capacity = free.capacity;
        return free.holds(capacity.memoryMiB(request), capacity.cores(request), 1, capacity.givesWhole(request))
                && holdsWhenEmpty(pod, request, capacity);
    }

    /** Refuses a pod that requests one vGPU, with the last in {@link Reason}'s order of the GPUs' obstacles. */
    private static Refused refuse(PodGpuRequest pod, List<GpuInfo> gpus) {
        GpuRequest request = pod.containers().get(0).request();
        Reason last = Reason.TOO_FEW_GPUS;
        for (int i = 0; i < gpus.size(); i++) {
            Reason obstacle = PodGpuSelector.obstacle(pod, request, gpus.get(i));
            if (i == 0 || obstacle.compareTo(last) > 0) {
                last = obstacle;
            }
        }
        return pod.refusals(0).of(last);
    }
}
