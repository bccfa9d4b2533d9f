package io.aliquot.scheduler.placement;

import io.aliquot.api.Placement;
import io.aliquot.scheduler.placement.Choice.Chosen;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * The ways to put a pod on a node that a {@link Judge} may choose from; of those that leave the same room one. What fits
 * is the {@link Chooser}'s to say.
 *
 * @param demand the pod's
 * @param before the node's room
 * @param list one or more; of those that are liked alike the first is to be taken
 */
public record Ways(Demand demand, Room before, List<Way> list) {
    /**
     * One of them.
     *
     * @param gpu the GPU, by its place among the node's; the first where the pod has several
     * @param after the room that is left
     */
    public record Way(int gpu, Room after) {}

    /** The node that a pod is to be put on. */
    public record Host(Room.Shape shape, HostLoad left, List<GpuRoom> rooms) {
        /** What is left of it. */
        public Room room() {
            return Room.of(shape, left, rooms);
        }
    }

    /**
     * The ways.
     *
     * @param host that the pod fits on
     * @param policy how its GPUs are chosen: where it isn't {@link Placement#FRAGMENTATION}, and where the pod wants
     *     several GPUs, there is one way, the one that {@link Chooser} takes
     */
    public static Ways of(PodAsk ask, Host host, Placement policy, GpuModels models) {
        List<GpuRoom> rooms = host.rooms();
        HostLoad left = host.left().minus(ask.requests());
        Demand demand = models.demand(ask, largest(rooms));
        if (policy != Placement.FRAGMENTATION || !ask.wantsOneGpu()) {
            return new Ways(demand, host.room(), List.of(chosen(ask, host, left, policy)));
        }
        List<Way> ways = new ArrayList<>();
        for (int gpu : fullestFirst(ask, rooms)) {
            Room after = Room.of(host.shape(), left, with(rooms, gpu, Chooser.amount(ask, rooms.get(gpu).card)));
            if (!leadTo(after, ways)) {
                ways.add(new Way(gpu, after));
            }
        }
        return new Ways(demand, host.room(), ways);
    }

    private static boolean leadTo(Room room, List<Way> ways) {
        for (Way way : ways) {
            if (way.after().equals(room)) {
                return true;
            }
        }
        return false;
    }

    private static int largest(List<GpuRoom> rooms) {
        return rooms.isEmpty()
                ? 1
                : GpuModels.largest(rooms.stream().map(GpuRoom::card).toList())
                        .gpu
                        .memoryMiB();
    }

    private static Way chosen(PodAsk ask, Host host, HostLoad left, Placement policy) {
        List<GpuRoom> rooms = host.rooms();
        int first = -1;
        if (Chooser.choose(ask, rooms, policy) instanceof Chosen chosen) {
            for (int gpu = host.rooms().size() - 1; gpu >= 0; gpu--) {
                Amount amount = chosen.perGpu().get(host.rooms().get(gpu).gpu().uuid());
                if (amount != null) {
                    rooms = with(rooms, gpu, amount);
                    first = gpu;
                }
            }
        }
        return new Way(first, Room.of(host.shape(), left, rooms));
    }

    private static List<GpuRoom> with(List<GpuRoom> rooms, int gpu, Amount amount) {
        var with = new ArrayList<>(rooms);
        with.set(gpu, rooms.get(gpu).with(amount));
        return with;
    }

    /** The GPUs that hold the one vGPU that the pod asks for. */
    private static List<Integer> fullestFirst(PodAsk ask, List<GpuRoom> rooms) {
        var fitting = new ArrayList<Integer>(rooms.size());
        for (int gpu = 0; gpu < rooms.size(); gpu++) {
            if (Chooser.holds(ask, rooms.get(gpu))) {
                fitting.add(gpu);
            }
        }
        fitting.sort(Comparator.comparing(rooms::get, Picker::byFullness));
        return fitting;
    }
}
