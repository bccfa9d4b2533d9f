package io.aliquot.scheduler.placement;

import io.aliquot.api.GpuRequest;
import io.aliquot.api.Placement;
import io.aliquot.scheduler.scoring.ScoringPolicy;
import java.util.List;
import java.util.Optional;

/**
 * The ways to put a pod on a node that a {@link ScoringPolicy} may choose from; of those that leave the same room one. What fits
 * is the {@link GpuSelector}'s to say. One or more; of those that are liked alike the first is to be taken. Found for one node
 * after the other: new ones for each would be garbage for each pod.
 */
public final class CandidatePlacements {
    private static final FreeCapacity NOWHERE = FreeCapacity.of(new FreeCapacity.Shape(0, 0, 0, 1, 0, 0));
    private static final DemandVector NOTHING = new DemandVector(0, 0, 0, false, 0, 0, DemandVector.ANY);

    private final PodGpuRequest ask;
    private final GpuModels models;

    private DemandVector demand = NOTHING;
    /** Of which card that is; 0 before there was a node. */
    private int largestMiB;

    private FreeCapacity before = NOWHERE;
    private HostResources left = HostResources.NONE;
    private int count;
    /** Of each way; there may be more numbers than ways. */
    private int[] gpus = {};
    /** What is left of that GPU now, and then. */
    private long[] now = {};

    private long[] then = {};
    /** What is left where there is one way, by whatever GPUs. */
    private Optional<FreeCapacity> only = Optional.empty();

    private FreeCapacity draft = NOWHERE;

    /** Of this pod; on no node yet. */
    public CandidatePlacements(PodGpuRequest ask, GpuModels models) {
        this.ask = ask;
        this.models = models;
    }

    /** The pod's. */
    public DemandVector demand() {
        return demand;
    }

    /** The node's room. */
    public FreeCapacity before() {
        return before;
    }

    /** How many there are. */
    public int count() {
        return count;
    }

    /** The GPU, by its place among the node's; the first where the pod has several, -1 where it has none. */
    public int gpu(int way) {
        return gpus[way];
    }

    /** The room that is left, to look something up by: valid until the next one is asked for. */
    public FreeCapacity after(int way) {
        if (only.isPresent()) {
            return only.get();
        }
        draft = draft.isShapedLike(before) ? draft : before.scratch();
        before.with(now[way], then[way], left, draft);
        return draft;
    }

    /** The same, valid for good. */
    public FreeCapacity kept(int way) {
        return only.isPresent() ? only.get() : before.with(now[way], then[way], left);
    }

    /**
     * Finds them on a node that the pod fits on.
     *
     * @param room what is left of it
     * @param host the same of CPU and memory, to the byte
     * @param rooms every GPU of the node
     * @param policy how its GPUs are chosen: where it isn't {@link Placement#FRAGMENTATION}, and where the pod wants
     *     several GPUs, there is one way, the one that {@link GpuSelector} takes
     */
    public void find(FreeCapacity room, HostResources host, List<GpuFreeCapacity> rooms, Placement policy) {
        int largest = largestMiB(rooms);
        if (largest != largestMiB) {
            largestMiB = largest;
            demand = models.demand(ask, largest);
        }
        before = room;
        left = host.minus(ask.requests());
        count = 0;
        only = Optional.empty();
        int most = Math.max(1, rooms.size());
        if (gpus.length < most) {
            gpus = new int[most];
            now = new long[most];
            then = new long[most];
        }
        if (policy == Placement.FRAGMENTATION && ask.requestsOneVgpu()) {
            eachGpu(rooms);
        } else {
            chosen(rooms, policy);
        }
    }

    private void eachGpu(List<GpuFreeCapacity> rooms) {
        int fitting = fullestFirst(rooms);
        for (int i = 0; i < fitting; i++) {
            int gpu = gpus[i];
            long here = before(rooms.get(gpu));
            long after = after(rooms.get(gpu));
            boolean known = false;
            for (int way = 0; way < count && !known; way++) {
                known = now[way] == here && then[way] == after;
            }
            if (!known) {
                gpus[count] = gpu;
                now[count] = here;
                then[count++] = after;
            }
        }
    }

    private static int largestMiB(List<GpuFreeCapacity> gpus) {
        if (gpus.isEmpty()) {
            return 1;
        }
        GpuCapacity largest = gpus.get(0).capacity;
        for (int gpu = 1; gpu < gpus.size(); gpu++) {
            largest = GpuModels.larger(largest, gpus.get(gpu).capacity);
        }
        return largest.vgpuMiB;
    }

    private long before(GpuFreeCapacity room) {
        return FreeCapacity.left(before.shape(), room, 0, 0, 0, false);
    }

    /** What is left of a GPU once it holds the one vGPU that the pod asks for. */
    private long after(GpuFreeCapacity room) {
        GpuRequest request = ask.containers().get(0).request();
        return FreeCapacity.left(
                before.shape(),
                room,
                GpuSelector.memoryMiB(request, room.capacity),
                GpuSelector.cores(request, room.capacity),
                1,
                request.exclusive());
    }

    private void chosen(List<GpuFreeCapacity> rooms, Placement policy) {
        FreeCapacity after = FreeCapacity.of(before.shape(), left, rooms);
        int first = -1;
        if (GpuSelector.select(ask, rooms, policy) instanceof GpuSelection.Selected chosen) {
            for (int gpu = rooms.size() - 1; gpu >= 0; gpu--) {
                GpuFreeCapacity room = rooms.get(gpu);
                GpuAmount amount = chosen.perGpu().get(room.gpu().uuid());
                if (amount != null) {
                    long leftOfIt = FreeCapacity.left(
                            after.shape(),
                            room,
                            amount.memoryMiB(),
                            amount.cores(),
                            amount.slots(),
                            amount.exclusive());
                    after = after.with(before(room), leftOfIt, left);
                    first = gpu;
                }
            }
        }
        gpus[0] = first;
        count = 1;
        only = Optional.of(after);
    }

    /** Puts those GPUs first that hold the one vGPU that the pod asks for; answers how many. */
    private int fullestFirst(List<GpuFreeCapacity> rooms) {
        int fitting = 0;
        for (int gpu = 0; gpu < rooms.size(); gpu++) {
            GpuFreeCapacity room = rooms.get(gpu);
            if (GpuSelector.holds(ask, room)) {
                int at = fitting++;
                for (; at > 0 && ContainerGpuSelector.byFullness(room, rooms.get(gpus[at - 1])) < 0; at--) {
                    gpus[at] = gpus[at - 1];
                }
                gpus[at] = gpu;
            }
        }
        return fitting;
    }
}
