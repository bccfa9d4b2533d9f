package io.aliquot.scheduler.placement;

import io.aliquot.api.Gpu;
import io.aliquot.api.GpuRequest;
import io.aliquot.api.MemoryRequest;
import io.aliquot.api.Placement;
import io.aliquot.api.Vgpu;
import io.aliquot.scheduler.placement.Choice.Chosen;
import io.aliquot.scheduler.placement.Choice.Refused;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;

/*
 * One container at a time, the most demanding first, each takes the policy's best GPUs that still hold it. For a pod
 * with one GPU container, nearly every pod, that is exact: it fits if and only if enough GPUs hold it. For several
 * containers it is the first-fit-decreasing heuristic of bin packing, tried with the fullest GPUs first and with the
 * emptiest first, and may miss a fit that only a search would find.
 */
/** Chooses a pod's GPUs among those of one node. */
public final class Chooser {
    private static final Comparator<ContainerAsk> MOST_DEMANDING_FIRST = Comparator.<ContainerAsk, Boolean>comparing(
                    c -> !c.request().exclusive())
            .thenComparing(c -> -c.request().vgpus())
            .thenComparing(c -> -demand(c.request().memory()))
            .thenComparing(c -> -c.request().cores());

    private final PodAsk ask;
    private final List<GpuRoom> rooms;
    private final Map<ContainerAsk, List<Gpu>> given = new HashMap<>();

    private Chooser(PodAsk ask, List<GpuRoom> rooms) {
        this.ask = ask;
        this.rooms = rooms;
    }

    /**
     * Chooses.
     *
     * @param rooms every GPU of the node
     * @param policy which GPU to take first among those that hold a container
     */
    public static Choice choose(PodAsk ask, List<GpuRoom> rooms, Placement policy) {
        Choice choice = new Chooser(ask, rooms).choose(policy);
        if (choice instanceof Refused && ask.containers().size() > 1) {
            Placement other = policy == Placement.BINPACK ? Placement.SPREAD : Placement.BINPACK;
            if (new Chooser(ask, rooms).choose(other) instanceof Chosen chosen) {
                return chosen;
            }
        }
        return choice;
    }

    private Choice choose(Placement policy) {
        for (ContainerAsk container :
                ask.containers().stream().sorted(MOST_DEMANDING_FIRST).toList()) {
            List<GpuRoom> fitting = rooms.stream()
                    .filter(room -> room.holds(with(container, room)))
                    .sorted(order(policy))
                    .limit(container.request().vgpus())
                    .toList();
            if (fitting.size() < container.request().vgpus()) {
                return refuse(container);
            }
            given.put(container, fitting.stream().map(GpuRoom::gpu).toList());
        }
        var perGpu = new HashMap<String, Amount>();
        for (GpuRoom room : rooms) {
            Amount amount = taken(room);
            if (amount.slots() > 0) {
                perGpu.put(room.gpu().uuid(), amount);
            }
        }
        return new Chosen(
                given,
                perGpu,
                rooms.stream()
                        .mapToDouble(room -> room.fullnessWith(taken(room)))
                        .average()
                        .orElse(1));
    }

    private Comparator<GpuRoom> order(Placement policy) {
        Comparator<GpuRoom> emptiest = Comparator.comparingDouble(room -> room.fullnessWith(taken(room)));
        Comparator<GpuRoom> byPolicy = switch (policy) {
            // Of equally full ones the smallest, so that large cards stay whole.
            case BINPACK -> emptiest.reversed().thenComparing(room -> room.gpu().memoryMiB());
            case SPREAD -> emptiest;
        };
        return byPolicy.thenComparing(room -> room.gpu().index());
    }

    /** What this pod holds of a GPU so far. */
    private Amount taken(GpuRoom room) {
        return given.isEmpty() ? Amount.NOTHING : peak(room, container -> false);
    }

    /** What this pod would hold of a GPU if {@code container} got a vGPU there. */
    private Amount with(ContainerAsk container, GpuRoom room) {
        return given.isEmpty() ? amount(container, room) : peak(room, container::equals);
    }

    private Amount peak(GpuRoom room, Predicate<ContainerAsk> further) {
        var timed = new ArrayList<Amount.Timed>(ask.containers().size());
        for (ContainerAsk container : ask.containers()) {
            if (further.test(container)
                    || given.getOrDefault(container, List.of()).contains(room.gpu())) {
                timed.add(new Amount.Timed(container.kind(), amount(container, room)));
            }
        }
        return Amount.peak(timed);
    }

    private static Amount amount(ContainerAsk container, GpuRoom room) {
        GpuRequest request = container.request();
        return new Amount(request.memory().on(room.gpu().memoryMiB()), request.cores(), 1, request.exclusive());
    }

    private Refused refuse(ContainerAsk container) {
        GpuRequest request = container.request();
        int vgpus = request.vgpus();
        String memory = words(request.memory());
        if (vgpus > rooms.size()) {
            return refused(
                    container,
                    "asks for " + plural(vgpus, "vGPU") + ", the node has " + plural(rooms.size(), "GPU"),
                    true);
        }
        if (count(room -> request.memory().on(room.gpu().memoryMiB())
                        <= room.gpu().memoryMiB())
                < vgpus) {
            return refused(container, none(vgpus) + " that large: " + memory, true);
        }
        if (count(room -> room.gpu().healthy()) < vgpus) {
            return refused(container, none(vgpus) + " healthy", false);
        }
        Predicate<GpuRoom> fits = room -> room.gpu().healthy();
        if (request.exclusive()) {
            return refused(container, none(vgpus) + " wholly free", false);
        }
        fits = fits.and(room -> room.hasMemory(with(container, room)) && room.alone(with(container, room)));
        if (count(fits) < vgpus) {
            return refused(container, none(vgpus) + " with " + memory + " free", false);
        }
        fits = fits.and(room -> room.hasCores(with(container, room)));
        if (count(fits) < vgpus) {
            return refused(
                    container,
                    none(vgpus) + " with " + memory + " and " + request.cores() + " % of its cores free",
                    false);
        }
        return refused(container, none(vgpus) + " with " + memory + " and a slot free", false);
    }

    private Refused refused(ContainerAsk container, String reason, boolean hopeless) {
        String whose = ask.containers().size() > 1 ? " for container " + container.name() : "";
        return new Refused(reason + whose, hopeless);
    }

    private long count(Predicate<GpuRoom> holds) {
        return rooms.stream().filter(holds).count();
    }

    private static String none(int vgpus) {
        return vgpus == 1 ? "no GPU" : "fewer than " + vgpus + " GPUs";
    }

    private static String plural(int count, String noun) {
        return count + " " + noun + (count == 1 ? "" : "s");
    }

    private static String words(MemoryRequest memory) {
        if (memory instanceof MemoryRequest.Mebibytes mebibytes) {
            return mebibytes.amount() + " MiB";
        }
        if (memory instanceof MemoryRequest.Percentage percentage) {
            return percentage.percent() + " % of its memory";
        }
        return "all its memory";
    }

    private static double demand(MemoryRequest memory) {
        return memory.on(Vgpu.LARGEST_MIB);
    }
}
