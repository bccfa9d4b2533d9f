package io.aliquot.scheduler.placement;

import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.pods.GpuRequest;
import java.util.List;
import java.util.Optional;

/**
 * The placements of a pod on one node that a {@link CandidateChooser} chooses from, the policy's preferred GPU first.
 * Placements that leave identical free capacity are listed once. {@link GpuSelector} decides what fits. One object is
 * reused for all nodes, because a new one for each node would be garbage for each pod.
 */
public final class CandidatePlacements {
    private static final FreeCapacity NOWHERE = FreeCapacity.of(new FreeCapacity.Shape(0, 0, 0, 1, 0, 0));
    private static final DemandVector NOTHING = new DemandVector(0, 0, 0, false, 0, 0, DemandVector.ANY);

    private final PodGpuRequest request;
    private final GpuModels models;

    private DemandVector demand = NOTHING;
    /** Memory of the GPU that the demand is computed for; 0 before the first node. */
    private int largestMiB;

    private FreeCapacity before = NOWHERE;
    /** Free CPU and memory with the pod. */
    private HostResources hostAfter = HostResources.NONE;

    private int count;
    /** The GPU of each candidate; may be longer than the number of candidates. */
    private int[] gpus = {};
    /** Free capacity of that GPU without and with the pod. */
    private long[] gpuBefore = {};

    private long[] gpuAfter = {};
    /** Free capacity with the pod if there is a single candidate, on any number of GPUs. */
    private Optional<FreeCapacity> only = Optional.empty();

    /** The candidates of one pod; none until {@link #find}. */
    public CandidatePlacements(PodGpuRequest request, GpuModels models) {
        this.request = request;
        this.models = models;
    }

    /** The pod's demand. */
    public DemandVector demand() {
        return demand;
    }

    /** The node's free capacity. */
    public FreeCapacity before() {
        return before;
    }

    /** The number of candidates, 1 or more. */
    public int count() {
        return count;
    }

    /** The GPU of a candidate, by its index on the node; the first one of several, -1 for a pod without GPUs. */
    public int gpu(int candidate) {
        return gpus[candidate];
    }

    /** The node's free capacity with a candidate. */
    public FreeCapacity after(int candidate) {
        return only.isPresent() ? only.get() : before.with(gpuBefore[candidate], gpuAfter[candidate], hostAfter);
    }

    /**
     * Finds the candidates on a node that the pod fits on.
     *
     * @param node its free capacity
     * @param host its free CPU and memory, to the byte
     * @param freeGpus every GPU of the node
     * @param policy how its GPUs are selected. If the policy scores candidates, the pod requests one vGPU and no share
     *     takes a whole MIG instance, every GPU that holds it is a candidate; otherwise the selection of {@link
     *     GpuSelector}, of instances the smallest, is the only candidate
     */
    public void find(FreeCapacity node, HostResources host, List<GpuInfo> freeGpus, PlacementPolicy policy) {
        int largest = largestMiB(freeGpus);
        if (largest != largestMiB) {
            largestMiB = largest;
            demand = models.demand(request, largest);
        }
        before = node;
        hostAfter = host.minus(request.hostRequests());
        count = 0;
        only = Optional.empty();
        int most = Math.max(1, freeGpus.size());
        if (gpus.length < most) {
            gpus = new int[most];
            gpuBefore = new long[most];
            gpuAfter = new long[most];
        }
        if (policy.scoresCandidates() && request.requestsOneVgpu() && !givesWholeInstances(freeGpus)) {
            eachGpu(freeGpus, policy);
        } else {
            selected(freeGpus, policy);
        }
    }

    private void eachGpu(List<GpuInfo> freeGpus, PlacementPolicy policy) {
        int fitting = preferredFirst(freeGpus, policy);
        for (int i = 0; i < fitting; i++) {
            int gpu = gpus[i];
            long here = before(freeGpus.get(gpu));
            long after = after(freeGpus.get(gpu));
            boolean known = false;
            for (int candidate = 0; candidate < count && !known; candidate++) {
                known = gpuBefore[candidate] == here && gpuAfter[candidate] == after;
            }
            if (!known) {
                gpus[count] = gpu;
                gpuBefore[count] = here;
                gpuAfter[count++] = after;
            }
        }
    }

    private static boolean givesWholeInstances(List<GpuInfo> gpus) {
        for (int gpu = 0; gpu < gpus.size(); gpu++) {
            if (gpus.get(gpu).capacity.sharingMode == SharingMode.MIG) {
                return true;
            }
        }
        return false;
    }

    private static int largestMiB(List<GpuInfo> gpus) {
        if (gpus.isEmpty()) {
            return 1;
        }
        GpuCapacity largest = gpus.get(0).capacity;
        for (int gpu = 1; gpu < gpus.size(); gpu++) {
            largest = GpuModels.larger(largest, gpus.get(gpu).capacity);
        }
        return largest.vgpuMiB;
    }

    private long before(GpuInfo gpu) {
        return FreeCapacity.left(before.shape(), gpu, 0, 0, 0, false);
    }

    /** Free capacity of a GPU with the one vGPU that the pod requests. */
    private long after(GpuInfo gpu) {
        GpuRequest vgpu = request.containers().get(0).request();
        return FreeCapacity.left(
                before.shape(),
                gpu,
                gpu.capacity.memoryMiB(vgpu),
                gpu.capacity.cores(vgpu),
                1,
                gpu.capacity.givesWhole(vgpu));
    }

    private void selected(List<GpuInfo> freeGpus, PlacementPolicy policy) {
        FreeCapacity after = FreeCapacity.of(before.shape(), hostAfter, freeGpus);
        int first = -1;
        if (GpuSelector.select(request, freeGpus, policy) instanceof GpuSelection.Selected selection) {
            for (int gpu = freeGpus.size() - 1; gpu >= 0; gpu--) {
                GpuInfo gpuFree = freeGpus.get(gpu);
                GpuAmount amount = selection.perGpu().get(gpuFree.gpu().uuid());
                if (amount != null) {
                    long left = FreeCapacity.left(
                            after.shape(),
                            gpuFree,
                            amount.memoryMiB(),
                            amount.cores(),
                            amount.slots(),
                            amount.exclusive());
                    after = after.with(before(gpuFree), left, hostAfter);
                    first = gpu;
                }
            }
        }
        gpus[0] = first;
        count = 1;
        only = Optional.of(after);
    }

    /** Writes the GPUs that hold the one requested vGPU to {@code gpus}, highest rating first; returns their number. */
    private int preferredFirst(List<GpuInfo> freeGpus, PlacementPolicy policy) {
        int fitting = 0;
        for (int gpu = 0; gpu < freeGpus.size(); gpu++) {
            GpuInfo gpuFree = freeGpus.get(gpu);
            if (GpuSelector.holds(request, gpuFree)) {
                int at = fitting++;
                for (; at > 0 && rate(gpuFree, policy) > rate(freeGpus.get(gpus[at - 1]), policy); at--) {
                    gpus[at] = gpus[at - 1];
                }
                gpus[at] = gpu;
            }
        }
        return fitting;
    }

    private static long rate(GpuInfo free, PlacementPolicy policy) {
        return policy.rateGpu(free.fullness, free.capacity);
    }
}
