package io.aliquot.scheduler.placement;

import io.aliquot.api.GpuRequest;
import io.aliquot.api.MemoryRequest;
import io.aliquot.api.Placement;
import io.aliquot.api.SharingMode;
import io.aliquot.api.Vgpu;
import io.aliquot.api.Vgpus;
import io.aliquot.scheduler.placement.GpuSelection.Fits;
import io.aliquot.scheduler.placement.GpuSelection.Glance;
import io.aliquot.scheduler.placement.GpuSelection.Refused;
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
 * One container at a time, the most demanding first, each takes the best GPUs that still hold it (Picker). With one
 * container that is exact. With several it is first-fit-decreasing, tried with the pod's policy and with the other one;
 * where both fail a search goes through the other ways: containers in the same order, their GPUs one by one in ascending
 * order, and of GPUs that are alike only the first. It ends with a fit, with the certainty that there is none, or after
 * BUDGET tries, when it says that there is none although there may be.
 */
/** The search for the GPUs of one pod on one node. */
final class PodGpuSelector {
    /** Tries of a GPU; enough for three containers in every way on eight different GPUs (8³ = 512) and for four (4096). */
    static final int BUDGET = 8192;

    private final PodGpuRequest ask;
    private final List<GpuFreeCapacity> rooms;
    private final Placement policy;
    private final boolean byLinks;
    private final List<ContainerGpuRequest> containers;
    /** Whether a container has a vGPU on a GPU, by their places. */
    private final boolean[][] given;

    private int tries;

    PodGpuSelector(PodGpuRequest ask, List<GpuFreeCapacity> rooms, Placement policy, boolean byLinks) {
        this.ask = ask;
        this.rooms = rooms;
        this.policy = policy;
        this.byLinks = byLinks;
        this.containers = ask.containers();
        this.given = new boolean[containers.size()][rooms.size()];
    }

    GpuSelection selection() {
        Refused refused = place();
        return refused == null ? chosen() : refused;
    }

    Glance quickCheck() {
        Refused refused = place();
        return refused == null ? new Fits(fullness()) : refused;
    }

    /** Tries of a GPU in the search after the heuristic. */
    int tries() {
        return tries;
    }

    /** Answers null when every container has its GPUs. */
    private @Nullable Refused place() {
        int[] order = mostDemandingFirst();
        Refused refused = oneAfterTheOther(order, policy);
        if (refused == null || refused.hopeless() || containers.size() == 1) {
            return refused;
        }
        clear();
        if (oneAfterTheOther(order, policy == Placement.SPREAD ? Placement.BINPACK : Placement.SPREAD) == null) {
            return null;
        }
        clear();
        return extend(order, 0, 0, 0) ? null : refused;
    }

    private int[] mostDemandingFirst() {
        if (containers.size() == 1) {
            return new int[] {0};
        }
        return IntStream.range(0, containers.size())
                .boxed()
                .sorted(Comparator.<Integer, Boolean>comparing(c -> !request(c).exclusive())
                        .thenComparing(c -> -request(c).vgpus())
                        .thenComparing(c -> -demand(request(c).memory()))
                        .thenComparing(c -> -request(c).cores()))
                .mapToInt(Integer::intValue)
                .toArray();
    }

    private GpuRequest request(int container) {
        return containers.get(container).request();
    }

    private static double demand(MemoryRequest memory) {
        return memory.on(Vgpu.LARGEST_MIB);
    }

    private void clear() {
        for (boolean[] row : given) {
            Arrays.fill(row, false);
        }
    }

    private @Nullable Refused oneAfterTheOther(int[] order, Placement first) {
        for (int container : order) {
            int wanted = request(container).vgpus();
            int[] candidates = candidates(container);
            if (candidates.length < wanted) {
                return refuse(container);
            }
            int[] set = selector(first).select(candidates, wanted, ask.numa());
            if (set.length == 0) {
                return refuse(container);
            }
            for (int room : set) {
                given[container][room] = true;
            }
        }
        return null;
    }

    private ContainerGpuSelector selector(Placement first) {
        int[] fullness = new int[rooms.size()];
        boolean[] held = new boolean[rooms.size()];
        for (int room = 0; room < rooms.size(); room++) {
            held[room] = !nobodyHas(room);
            fullness[room] = fullness(room);
        }
        return new ContainerGpuSelector(rooms, fullness, held, first, byLinks, ask.topology());
    }

    private int[] candidates(int container) {
        int[] candidates = new int[rooms.size()];
        int count = 0;
        for (int room = 0; room < rooms.size(); room++) {
            if (holds(container, room)) {
                candidates[count++] = room;
            }
        }
        return Arrays.copyOf(candidates, count);
    }

    private boolean holds(int container, int room) {
        GpuFreeCapacity there = rooms.get(room);
        if (containers.size() == 1) {
            return !given[container][room] && GpuSelector.holds(ask, request(container), there);
        }
        if (given[container][room] || !GpuSelector.suits(ask, request(container), there.card)) {
            return false;
        }
        GpuAmount with = with(container, room);
        return there.holds(with.memoryMiB(), with.cores(), with.slots(), with.exclusive());
    }

    /** What the pod would hold of a GPU if a container got a vGPU there. */
    private GpuAmount with(int container, int room) {
        boolean before = given[container][room];
        given[container][room] = true;
        GpuAmount with = held(room);
        given[container][room] = before;
        return with;
    }

    /** What the pod holds of a GPU so far. */
    private GpuAmount held(int room) {
        if (nobodyHas(room)) {
            return GpuAmount.NOTHING;
        }
        GpuAmount.Peak peak = new GpuAmount.Peak();
        GpuCapacity card = rooms.get(room).card;
        for (int container = 0; container < containers.size(); container++) {
            if (given[container][room]) {
                GpuRequest request = request(container);
                peak.add(
                        containers.get(container).kind(),
                        GpuSelector.memory(request, card),
                        GpuSelector.cores(request, card),
                        1,
                        request.exclusive());
            }
        }
        return peak.amount();
    }

    private boolean nobodyHas(int room) {
        for (boolean[] row : given) {
            if (row[room]) {
                return false;
            }
        }
        return true;
    }

    // The search.

    /** Gives the containers from the {@code position}th of the order on their GPUs; false changes nothing. */
    private boolean extend(int[] order, int position, int picked, int from) {
        if (position == order.length) {
            return true;
        }
        int container = order[position];
        int wanted = request(container).vgpus();
        if (picked == wanted) {
            return extend(order, position + 1, 0, 0);
        }
        for (int room = from; room <= rooms.size() - (wanted - picked); room++) {
            if (tries >= BUDGET) {
                return false;
            }
            tries++;
            if (!holds(container, room) || !oneDomain(container, room) || likeOneBefore(from, room)) {
                continue;
            }
            given[container][room] = true;
            if (extend(order, position, picked + 1, room + 1)) {
                return true;
            }
            given[container][room] = false;
        }
        return false;
    }

    /** Whether a container that requires one NUMA domain still has it with this GPU. */
    private boolean oneDomain(int container, int room) {
        if (!needsOneDomain(container)) {
            return true;
        }
        int domain = numa(room);
        for (int other = 0; other < rooms.size(); other++) {
            if (given[container][other] && numa(other) != domain) {
                return false;
            }
        }
        return domain >= 0;
    }

    private boolean needsOneDomain(int container) {
        return ask.oneDomain() && request(container).vgpus() > 1;
    }

    private int numa(int room) {
        return rooms.get(room).card.gpu.numa();
    }

    /** Whether a GPU that was just tried in vain, from {@code from} on, is the same to this pod. */
    private boolean likeOneBefore(int from, int room) {
        for (int other = from; other < room; other++) {
            if (alike(other, room)) {
                return true;
            }
        }
        return false;
    }

    private boolean alike(int one, int other) {
        GpuFreeCapacity here = rooms.get(one);
        GpuFreeCapacity there = rooms.get(other);
        if (here.card.gpu.memoryMiB() != there.card.gpu.memoryMiB()
                || here.card.open != there.card.open
                || !here.taken().equals(there.taken())
                || (ask.numa().isPresent() && numa(one) != numa(other))
                || ask.takes(here.card.gpu) != ask.takes(there.card.gpu)) {
            return false;
        }
        for (boolean[] row : given) {
            if (row[one] != row[other]) {
                return false;
            }
        }
        return true;
    }

    // The answer.

    private GpuSelection.Selected chosen() {
        Map<String, Vgpus> held = new HashMap<>();
        for (int container = 0; container < containers.size(); container++) {
            List<Vgpu> vgpus = new ArrayList<>();
            for (int room = 0; room < rooms.size(); room++) {
                if (given[container][room]) {
                    vgpus.add(GpuSelector.vgpu(ask, request(container), rooms.get(room).card));
                }
            }
            held.put(containers.get(container).name(), new Vgpus(vgpus));
        }
        Map<String, GpuAmount> perGpu = new HashMap<>();
        for (int room = 0; room < rooms.size(); room++) {
            GpuAmount amount = held(room);
            if (amount.slots() > 0) {
                perGpu.put(rooms.get(room).card.gpu.uuid(), amount);
            }
        }
        return new GpuSelection.Selected(held, perGpu, fullness());
    }

    private double fullness() {
        long sum = 0;
        for (int room = 0; room < rooms.size(); room++) {
            sum += fullness(room);
        }
        return rooms.isEmpty() ? 1 : (double) sum / GpuFreeCapacity.FULL / rooms.size();
    }

    private int fullness(int room) {
        GpuFreeCapacity there = rooms.get(room);
        if (nobodyHas(room)) {
            return there.fullness;
        }
        GpuAmount amount = held(room);
        return there.fullnessWith(amount.memoryMiB(), amount.cores(), amount.exclusive());
    }

    // The reason.

    /** Why not enough GPUs hold a container beside those that have theirs already. */
    Refused refuse(int container) {
        return ask.refusals(container).of(reason(container));
    }

    private Reason reason(int container) {
        GpuRequest request = request(container);
        int wanted = request.vgpus();
        if (rooms.size() < wanted) {
            return Reason.TOO_FEW_GPUS;
        }
        Reason[] obstacles = new Reason[rooms.size()];
        for (int room = 0; room < rooms.size(); room++) {
            obstacles[room] = given[container][room]
                    ? Reason.NONE
                    : obstacle(ask, request, rooms.get(room), with(container, room));
        }
        for (Reason reason : Reason.values()) {
            // Of those that nothing worse is in the way of.
            if (reason == Reason.NUMA_DOMAINS) {
                if (needsOneDomain(container) && !oneDomainHas(wanted, obstacles)) {
                    return reason;
                }
            } else if (reason == Reason.NUMA_ROOM) {
                break;
            } else if (count(obstacles, reason) < wanted) {
                return reason;
            }
        }
        return Reason.NUMA_ROOM; // enough GPUs, but not of one domain
    }

    private static int count(Reason[] obstacles, Reason above) {
        int count = 0;
        for (Reason obstacle : obstacles) {
            count += obstacle.compareTo(above) > 0 ? 1 : 0;
        }
        return count;
    }

    private boolean oneDomainHas(int vgpus, Reason[] obstacles) {
        for (int first = 0; first < obstacles.length; first++) {
            int count = 0;
            for (int room = 0; room < obstacles.length; room++) {
                if (numa(room) == numa(first) && !obstacles[room].hopeless()) {
                    count++;
                }
            }
            if (numa(first) >= 0 && count >= vgpus) {
                return true;
            }
        }
        return false;
    }

    /** The first thing that keeps a vGPU off a GPU of which the pod would then hold {@code with}. */
    private static Reason obstacle(PodGpuRequest ask, GpuRequest request, GpuFreeCapacity room, GpuAmount with) {
        return obstacle(ask, request, room, with.memoryMiB(), with.cores(), with.slots(), with.exclusive());
    }

    /** The same for a pod that asks for nothing else. */
    static Reason obstacle(PodGpuRequest ask, GpuRequest request, GpuFreeCapacity room) {
        return obstacle(
                ask,
                request,
                room,
                GpuSelector.memory(request, room.card),
                GpuSelector.cores(request, room.card),
                1,
                request.exclusive());
    }

    private static Reason obstacle(
            PodGpuRequest ask,
            GpuRequest request,
            GpuFreeCapacity room,
            long memoryMiB,
            int cores,
            int slots,
            boolean exclusive) {
        GpuCapacity card = room.card;
        if (card.share == SharingMode.EXCLUSIVE && !request.exclusive()) {
            return Reason.WHOLE_CARDS_ONLY;
        }
        if (!ask.takesModel(card.gpu)) {
            return Reason.MODEL;
        }
        if (!ask.takes(card.gpu)) {
            return Reason.GPU;
        }
        if (GpuSelector.memory(request, card) > card.vgpuMiB) {
            return Reason.TOO_SMALL;
        }
        if (GpuSelector.cores(request, card) > card.cores) {
            return Reason.TOO_FEW_CORES;
        }
        if (!card.open) {
            return card.cordoned() && card.gpu.healthy() ? Reason.CORDONED : Reason.UNHEALTHY;
        }
        if (room.holds(memoryMiB, cores, slots, exclusive)) {
            return Reason.NONE;
        }
        if (request.exclusive()) {
            return Reason.NOT_WHOLLY_FREE;
        }
        if (!room.alone(exclusive) || memoryMiB > room.freeMiB) {
            return Reason.MEMORY;
        }
        return cores > room.freeCores ? Reason.CORES : Reason.SLOTS;
    }
}
