package io.aliquot.scheduler.placement;

import io.aliquot.api.GpuRequest;
import io.aliquot.api.Placement;
import io.aliquot.scheduler.placement.Choice.Chosen;
import java.util.ArrayList;
import java.util.List;

/**
 * The ways to put a pod on a node that a {@link Judge} may choose from; of those that leave the same room one. What fits
 * is the {@link Chooser}'s to say. One or more; of those that are liked alike the first is to be taken.
 */
public final class Ways {
    private final Demand demand;
    private final Room before;
    /** Of each way; there may be more numbers than ways. */
    private final int[] gpus;

    private final List<Room> after;

    private Ways(Demand demand, Room before, int[] gpus, List<Room> after) {
        this.demand = demand;
        this.before = before;
        this.gpus = gpus;
        this.after = after;
    }

    /** The pod's. */
    public Demand demand() {
        return demand;
    }

    /** The node's room. */
    public Room before() {
        return before;
    }

    /** How many there are. */
    public int count() {
        return after.size();
    }

    /** The GPU, by its place among the node's; the first where the pod has several, -1 where it has none. */
    public int gpu(int way) {
        return gpus[way];
    }

    /** The room that is left. */
    public Room after(int way) {
        return after.get(way);
    }

    /**
     * The node that a pod is to be put on.
     *
     * @param room what is left of it
     * @param left the same of CPU and memory, to the byte
     * @param gpus every GPU of the node
     */
    public record Host(Room room, HostLoad left, List<GpuRoom> gpus) {}

    /**
     * The ways.
     *
     * @param host that the pod fits on
     * @param policy how its GPUs are chosen: where it isn't {@link Placement#FRAGMENTATION}, and where the pod wants
     *     several GPUs, there is one way, the one that {@link Chooser} takes
     */
    public static Ways of(PodAsk ask, Host host, Placement policy, GpuModels models) {
        Demand demand = models.demand(ask, largestMiB(host.gpus()));
        return policy == Placement.FRAGMENTATION && ask.wantsOneGpu()
                ? eachGpu(ask, demand, host)
                : chosen(ask, demand, host, policy);
    }

    private static Ways eachGpu(PodAsk ask, Demand demand, Host host) {
        HostLoad left = host.left().minus(ask.requests());
        int[] gpus = new int[host.gpus().size()];
        int fitting = fullestFirst(ask, host.gpus(), gpus);
        var rooms = new ArrayList<Room>(fitting);
        for (int i = 0; i < fitting; i++) {
            long before = before(host, gpus[i]);
            long after = after(ask, host, gpus[i]);
            boolean known = false;
            for (int way = 0; way < rooms.size() && !known; way++) {
                known = before(host, gpus[way]) == before && after(ask, host, gpus[way]) == after;
            }
            if (!known) {
                gpus[rooms.size()] = gpus[i];
                rooms.add(host.room().with(before, after, left));
            }
        }
        return new Ways(demand, host.room(), gpus, rooms);
    }

    private static int largestMiB(List<GpuRoom> gpus) {
        if (gpus.isEmpty()) {
            return 1;
        }
        Card largest = gpus.get(0).card;
        for (int gpu = 1; gpu < gpus.size(); gpu++) {
            largest = GpuModels.larger(largest, gpus.get(gpu).card);
        }
        return largest.vgpuMiB;
    }

    private static long before(Host host, int gpu) {
        return Room.left(host.room().shape(), host.gpus().get(gpu), 0, 0, 0, false);
    }

    /** What is left of a GPU once it holds the one vGPU that the pod asks for. */
    private static long after(PodAsk ask, Host host, int gpu) {
        GpuRoom room = host.gpus().get(gpu);
        GpuRequest request = ask.containers().get(0).request();
        return Room.left(
                host.room().shape(),
                room,
                Chooser.memory(request, room.card),
                Chooser.cores(request, room.card),
                1,
                request.exclusive());
    }

    private static Ways chosen(PodAsk ask, Demand demand, Host host, Placement policy) {
        HostLoad left = host.left().minus(ask.requests());
        Room after = Room.of(host.room().shape(), left, host.gpus());
        int first = -1;
        if (Chooser.choose(ask, host.gpus(), policy) instanceof Chosen chosen) {
            for (int gpu = host.gpus().size() - 1; gpu >= 0; gpu--) {
                GpuRoom room = host.gpus().get(gpu);
                Amount amount = chosen.perGpu().get(room.gpu().uuid());
                if (amount != null) {
                    long leftOfIt = Room.left(
                            after.shape(),
                            room,
                            amount.memoryMiB(),
                            amount.cores(),
                            amount.slots(),
                            amount.exclusive());
                    after = after.with(before(host, gpu), leftOfIt, left);
                    first = gpu;
                }
            }
        }
        return new Ways(demand, host.room(), new int[] {first}, List.of(after));
    }

    /** Those GPUs that hold the one vGPU that the pod asks for; answers how many. */
    private static int fullestFirst(PodAsk ask, List<GpuRoom> rooms, int[] fitting) {
        int count = 0;
        for (int gpu = 0; gpu < rooms.size(); gpu++) {
            GpuRoom room = rooms.get(gpu);
            if (Chooser.holds(ask, room)) {
                int at = count++;
                for (; at > 0 && Picker.byFullness(room, rooms.get(fitting[at - 1])) < 0; at--) {
                    fitting[at] = fitting[at - 1];
                }
                fitting[at] = gpu;
            }
        }
        return count;
    }
}
