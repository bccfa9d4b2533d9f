package io.aliquot.scheduler.placement;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.api.pods.Vgpu;
import io.aliquot.api.pods.Vgpus;
import io.aliquot.scheduler.placement.Feasibility.Fits;
import io.aliquot.scheduler.placement.Feasibility.Refused;
import io.aliquot.scheduler.placement.RefusalReasons.Reason;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/*
 * The algorithm is first-fit decreasing, then an exhaustive search with a budget. First-fit decreasing assigns GPUs to
 * one container at a time, the largest request first; each gets the best GPUs that hold it (ContainerGpuSelector). For
 * one container that is exact. For several containers it runs with the pod's policy, then with the policy's alternative. If
 * both fail, a backtracking search tries the remaining assignments: containers in the same order, their GPUs in
 * ascending order, and only the first of equivalent GPUs. The search ends with an assignment, with the proof that there
 * is none, or after BUDGET attempts; in the last case the pod is refused although it may fit.
 */
/** Selects the GPUs of one pod on one node. Not thread-safe; used for one selection. */
final class PodGpuSelector {
    /**
     * Attempts to assign one GPU, at most. All assignments of three containers to eight different GPUs are 8³ = 512,
     * those of four containers 4096.
     */
    static final int BUDGET = 8192;

    private final int budget;
    private final PodGpuRequest pod;
    private final List<GpuInfo> gpus;
    private final PlacementPolicy policy;
    private final boolean useLinks;
    private final List<ContainerGpuRequest> containers;
    /** {@code assigned[container][gpu]}: whether a container has a vGPU on a GPU. */
    private final boolean[][] assigned;

    private int attempts;

    /**
     * Prepares a selection.
     *
     * @param gpus every GPU of the node, in the order of its inventory
     * @param useLinks whether links between GPUs count; they never decide whether a pod with one container fits
     */
    PodGpuSelector(PodGpuRequest pod, List<GpuInfo> gpus, PlacementPolicy policy, boolean useLinks) {
        this(pod, gpus, policy, useLinks, BUDGET);
    }

    /** The same with another number of attempts. */
    PodGpuSelector(PodGpuRequest pod, List<GpuInfo> gpus, PlacementPolicy policy, boolean useLinks, int budget) {
        this.budget = budget;
        this.pod = pod;
        this.gpus = gpus;
        this.policy = policy;
        this.useLinks = useLinks;
        this.containers = pod.containers();
        this.assigned = new boolean[containers.size()][gpus.size()];
    }

    GpuSelection select() {
        Refused refused = assign();
        return refused == null ? selected() : refused;
    }

    Feasibility quickCheck() {
        Refused refused = assign();
        return refused == null ? new Fits(fullness()) : refused;
    }

    /** How many GPUs the backtracking search tried; 0 if first-fit decreasing succeeded. */
    int attempts() {
        return attempts;
    }

    /** Assigns GPUs to every container; null on success. */
    private @Nullable Refused assign() {
        int[] order = largestRequestFirst();
        Refused refused = firstFitDecreasing(order, policy);
        if (refused == null || refused.unresolvable() || containers.size() == 1) {
            return refused;
        }
        clearAssignments();
        if (firstFitDecreasing(order, policy.fallback()) == null) {
            return null;
        }
        clearAssignments();
        return search(order, 0, 0, 0) ? null : refused;
    }

    private int[] largestRequestFirst() {
        if (containers.size() == 1) {
            return new int[] {0};
        }
        return IntStream.range(0, containers.size())
                .boxed()
                .sorted(Comparator.<Integer, Boolean>comparing(c -> !request(c).exclusive())
                        .thenComparing(c -> -request(c).vgpus())
                        .thenComparing(c -> -comparableMemory(request(c).memory()))
                        .thenComparing(c -> -request(c).cores()))
                .mapToInt(Integer::intValue)
                .toArray();
    }

    private GpuRequest request(int container) {
        return containers.get(container).request();
    }

    /** One unit for requests in MiB and in percent: the MiB that a request means on the largest possible GPU. */
    private static double comparableMemory(MemoryRequest memory) {
        return memory.on(Gpu.LARGEST_MIB);
    }

    private void clearAssignments() {
        for (boolean[] row : assigned) {
            Arrays.fill(row, false);
        }
    }

    private @Nullable Refused firstFitDecreasing(int[] order, PlacementPolicy policy) {
        for (int container : order) {
            int vgpus = request(container).vgpus();
            int[] candidates = candidates(container);
            if (candidates.length < vgpus) {
                return refuse(container);
            }
            int[] set = containerSelector(policy).select(candidates, vgpus, pod.numa());
            if (set.length == 0) {
                return refuse(container);
            }
            for (int gpu : set) {
                assigned[container][gpu] = true;
            }
        }
        return null;
    }

    private ContainerGpuSelector containerSelector(PlacementPolicy policy) {
        int[] fullness = new int[gpus.size()];
        boolean[] used = new boolean[gpus.size()];
        for (int gpu = 0; gpu < gpus.size(); gpu++) {
            used[gpu] = isUsed(gpu);
            fullness[gpu] = fullness(gpu);
        }
        return new ContainerGpuSelector(gpus, fullness, used, policy, useLinks, pod.topology());
    }

    /** The GPUs that hold a further vGPU of a container. */
    private int[] candidates(int container) {
        int[] candidates = new int[gpus.size()];
        int count = 0;
        for (int gpu = 0; gpu < gpus.size(); gpu++) {
            if (holds(container, gpu)) {
                candidates[count++] = gpu;
            }
        }
        return Arrays.copyOf(candidates, count);
    }

    /** Whether a GPU that the container does not have yet holds a vGPU of it, beside the vGPUs already assigned. */
    private boolean holds(int container, int gpu) {
        GpuInfo free = gpus.get(gpu);
        if (!GpuSelector.holdsWhenEmpty(pod, request(container), free.capacity)) {
            return false;
        }
        GpuAmount amount = amountWith(container, gpu);
        return free.holds(amount.memoryMiB(), amount.cores(), amount.slots(), amount.exclusive());
    }

    /** The amount that the pod would hold of a GPU if a container that does not have it got a vGPU there. */
    private GpuAmount amountWith(int container, int gpu) {
        assigned[container][gpu] = true;
        GpuAmount amount = amount(gpu);
        assigned[container][gpu] = false;
        return amount;
    }

    /** The amount that the pod holds of a GPU by the assignments so far. */
    private GpuAmount amount(int gpu) {
        GpuAmount.Peak peak = new GpuAmount.Peak();
        GpuCapacity capacity = gpus.get(gpu).capacity;
        for (int container = 0; container < containers.size(); container++) {
            if (assigned[container][gpu]) {
                GpuRequest request = request(container);
                peak.add(
                        containers.get(container).kind(),
                        capacity.memoryMiB(request),
                        capacity.cores(request),
                        1,
                        capacity.givesWhole(request));
            }
        }
        return peak.amount();
    }

    /** Whether a container of the pod has a vGPU on a GPU. */
    private boolean isUsed(int gpu) {
        for (boolean[] row : assigned) {
            if (row[gpu]) {
                return true;
            }
        }
        return false;
    }

    // The backtracking search.

    /**
     * Assigns GPUs to the rest of a container's vGPUs and to all later containers. On failure it leaves the assignments
     * unchanged.
     *
     * @param position of the current container in {@code order}
     * @param count vGPUs of the current container that have a GPU
     * @param from first GPU to try; lower ones were tried
     */
    private boolean search(int[] order, int position, int count, int from) {
        if (position == order.length) {
            return true;
        }
        int container = order[position];
        int vgpus = request(container).vgpus();
        if (count == vgpus) {
            return search(order, position + 1, 0, 0);
        }
        for (int gpu = from; gpu <= gpus.size() - (vgpus - count); gpu++) {
            if (attempts >= budget) {
                return false;
            }
            attempts++;
            if (!holds(container, gpu) || !keepsOneDomain(container, gpu) || isEquivalentToTriedGpu(from, gpu)) {
                continue;
            }
            assigned[container][gpu] = true;
            if (search(order, position, count + 1, gpu + 1)) {
                return true;
            }
            assigned[container][gpu] = false;
        }
        return false;
    }

    /** Whether a container's GPUs satisfy its NUMA requirement, if any, with this GPU added. */
    private boolean keepsOneDomain(int container, int gpu) {
        if (!requiresOneDomain(container)) {
            return true;
        }
        int domain = numa(gpu);
        for (int other = 0; other < gpus.size(); other++) {
            if (assigned[container][other] && numa(other) != domain) {
                return false;
            }
        }
        return domain >= 0;
    }

    private boolean requiresOneDomain(int container) {
        return pod.requiresOneNumaDomain() && request(container).vgpus() > 1;
    }

    /** The NUMA domain of a GPU; -1 if unknown. */
    private int numa(int gpu) {
        return gpus.get(gpu).capacity.gpu.numa();
    }

    /** Whether a GPU is equivalent, for this pod, to one of {@code from} to {@code gpu - 1}, which failed. */
    private boolean isEquivalentToTriedGpu(int from, int gpu) {
        for (int other = from; other < gpu; other++) {
            if (areEquivalent(other, gpu)) {
                return true;
            }
        }
        return false;
    }

    private boolean areEquivalent(int first, int second) {
        GpuInfo one = gpus.get(first);
        GpuInfo other = gpus.get(second);
        if (one.capacity.schedulable != other.capacity.schedulable
                || one.capacity.size() != other.capacity.size()
                || !one.capacity.profile.equals(other.capacity.profile)
                || one.capacity.sharingMode != other.capacity.sharingMode
                || one.capacity.slots != other.capacity.slots
                || !one.allocated().equals(other.allocated())
                || (pod.numa().isPresent() && numa(first) != numa(second))
                || pod.takes(one.capacity.gpu) != pod.takes(other.capacity.gpu)) {
            return false;
        }
        for (boolean[] row : assigned) {
            if (row[first] != row[second]) {
                return false;
            }
        }
        return true;
    }

    // The result.

    private GpuSelection.Selected selected() {
        Map<String, Vgpus> byContainer = new HashMap<>();
        for (int container = 0; container < containers.size(); container++) {
            List<Vgpu> vgpus = new ArrayList<>();
            for (int gpu = 0; gpu < gpus.size(); gpu++) {
                if (assigned[container][gpu]) {
                    vgpus.add(GpuSelector.vgpu(pod, request(container), gpus.get(gpu).capacity));
                }
            }
            byContainer.put(containers.get(container).name(), new Vgpus(vgpus));
        }
        Map<String, GpuAmount> perGpu = new HashMap<>();
        for (int gpu = 0; gpu < gpus.size(); gpu++) {
            GpuAmount amount = amount(gpu);
            if (amount.slots() > 0) {
                perGpu.put(gpus.get(gpu).capacity.gpu.uuid(), amount);
            }
        }
        return new GpuSelection.Selected(byContainer, perGpu, fullness());
    }

    /** Mean fullness of the node's GPUs, 0 to 1; 1 without GPUs. */
    private double fullness() {
        long sum = 0;
        for (int gpu = 0; gpu < gpus.size(); gpu++) {
            sum += fullness(gpu);
        }
        return gpus.isEmpty() ? 1 : (double) sum / GpuInfo.FULL / gpus.size();
    }

    /** Fullness of a GPU with the assignments so far, 0 to {@link GpuInfo#FULL}. */
    private int fullness(int gpu) {
        GpuAmount amount = amount(gpu);
        return gpus.get(gpu).fullnessWith(amount.memoryMiB(), amount.cores(), amount.exclusive());
    }

    // The reason for a refusal.

    /** Why too few GPUs hold a container beside the assignments so far. */
    private Refused refuse(int container) {
        return pod.refusals(container).of(reason(container));
    }

    private Reason reason(int container) {
        GpuRequest request = request(container);
        int vgpus = request.vgpus();
        if (gpus.size() < vgpus) {
            return Reason.TOO_FEW_GPUS;
        }
        Reason[] obstacles = new Reason[gpus.size()];
        for (int gpu = 0; gpu < gpus.size(); gpu++) {
            obstacles[gpu] = obstacle(pod, request, gpus.get(gpu), amountWith(container, gpu));
        }
        for (Reason reason : Reason.values()) {
            if (reason == Reason.NUMA_DOMAINS) {
                if (requiresOneDomain(container) && !someDomainFitsWhenEmpty(vgpus, obstacles)) {
                    return reason;
                }
            } else if (reason == Reason.NUMA_CAPACITY) {
                break;
            } else if (countAbove(reason, obstacles) < vgpus) {
                return reason;
            }
        }
        return Reason.NUMA_CAPACITY; // enough GPUs hold the container, but not in one domain
    }

    /** The number of GPUs whose obstacle comes after {@code reason}. */
    private static int countAbove(Reason reason, Reason[] obstacles) {
        int count = 0;
        for (Reason obstacle : obstacles) {
            count += obstacle.compareTo(reason) > 0 ? 1 : 0;
        }
        return count;
    }

    /** Whether a known NUMA domain has that many GPUs that would hold a vGPU if they were empty. */
    private boolean someDomainFitsWhenEmpty(int vgpus, Reason[] obstacles) {
        for (int first = 0; first < obstacles.length; first++) {
            int count = 0;
            for (int gpu = 0; gpu < obstacles.length; gpu++) {
                if (numa(gpu) == numa(first) && !obstacles[gpu].unresolvable()) {
                    count++;
                }
            }
            if (numa(first) >= 0 && count >= vgpus) {
                return true;
            }
        }
        return false;
    }

    /** The first obstacle to a vGPU on a GPU of which the pod would then hold {@code amount}. */
    private static Reason obstacle(PodGpuRequest pod, GpuRequest request, GpuInfo free, GpuAmount amount) {
        return obstacle(pod, request, free, amount.memoryMiB(), amount.cores(), amount.slots(), amount.exclusive());
    }

    /** The first obstacle to a vGPU on a GPU, with no other vGPU of the pod on that GPU. */
    static Reason obstacle(PodGpuRequest pod, GpuRequest request, GpuInfo free) {
        return obstacle(
                pod,
                request,
                free,
                free.capacity.memoryMiB(request),
                free.capacity.cores(request),
                1,
                free.capacity.givesWhole(request));
    }

    private static Reason obstacle(
            PodGpuRequest pod,
            GpuRequest request,
            GpuInfo free,
            long memoryMiB,
            int cores,
            int slots,
            boolean exclusive) {
        GpuCapacity capacity = free.capacity;
        if (!capacity.admits(request)) {
            return request.profile().isEmpty() && capacity.profile.isEmpty()
                    ? Reason.WHOLE_CARDS_ONLY
                    : Reason.INSTANCE;
        }
        if (!pod.takesModel(capacity.gpu)) {
            return Reason.MODEL;
        }
        if (!pod.takes(capacity.gpu)) {
            return Reason.GPU;
        }
        if (capacity.memoryMiB(request) > capacity.vgpuMiB) {
            return Reason.TOO_SMALL;
        }
        if (capacity.cores(request) > capacity.cores) {
            return Reason.TOO_FEW_CORES;
        }
        if (!capacity.schedulable) {
            return !capacity.gpu.healthy()
                    ? Reason.UNHEALTHY
                    : capacity.cordoned() ? Reason.CORDONED : Reason.HELD_BY_OTHERS;
        }
        if (free.holds(memoryMiB, cores, slots, exclusive)) {
            return Reason.NONE;
        }
        if (capacity.givesWhole(request)) {
            return Reason.NOT_WHOLLY_FREE;
        }
        if (!free.respectsExclusivity(exclusive) || memoryMiB > free.freeMiB) {
            return Reason.MEMORY;
        }
        return cores > free.freeCores ? Reason.CORES : Reason.SLOTS;
    }
}
