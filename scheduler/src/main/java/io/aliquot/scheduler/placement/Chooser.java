package io.aliquot.scheduler.placement;

import io.aliquot.api.GpuRequest;
import io.aliquot.api.Placement;
import io.aliquot.api.Share;
import io.aliquot.scheduler.placement.Choice.Fits;
import io.aliquot.scheduler.placement.Choice.Glance;
import io.aliquot.scheduler.placement.Choice.Refused;
import io.aliquot.scheduler.placement.Refusals.Reason;
import java.util.List;

/*
 * A pod with one GPU container, nearly every pod, fits if and only if enough GPUs hold a vGPU of it (of one NUMA
 * domain, where it requires that); for one vGPU that is a loop over the GPUs that allocates nothing but its answer.
 * Pods with several GPU containers are PodSearch's.
 */
/** Chooses a pod's GPUs among those of one node. */
public final class Chooser {
    private Chooser() {}

    /**
     * Whether a pod fits, and how full the node's GPUs would then be. Fits if and only if {@link #choose} chooses; on a
     * node with different cards that is chosen from by links, the fullness may be another.
     *
     * @param rooms every GPU of the node, in its order
     * @param policy which GPU to take first among those that hold a container
     */
    public static Glance look(PodAsk ask, List<GpuRoom> rooms, Placement policy) {
        GpuRequest request =
                ask.containers().size() == 1 ? ask.containers().get(0).request() : null;
        if (request == null || request.vgpus() > 1) {
            return new PodSearch(ask, rooms, policy, request == null).glance();
        }
        GpuRoom best = null;
        long fullness = 0;
        for (int i = 0; i < rooms.size(); i++) {
            GpuRoom room = rooms.get(i);
            fullness += room.fullness;
            if (holds(ask, request, room)
                    && (best == null || Picker.byPolicy(policy, room.fullness, room, best.fullness, best) < 0)) {
                best = room;
            }
        }
        if (best == null) {
            return refuse(ask, request, rooms);
        }
        fullness += best.fullnessWith(memory(request, best.card), cores(request, best.card), request.exclusive())
                - best.fullness;
        return new Fits((double) fullness / GpuRoom.FULL / rooms.size());
    }

    /**
     * Chooses.
     *
     * @param rooms every GPU of the node, in its order
     * @param policy which GPU to take first among those that hold a container
     */
    public static Choice choose(PodAsk ask, List<GpuRoom> rooms, Placement policy) {
        return new PodSearch(ask, rooms, policy, true).choice();
    }

    /** What a vGPU takes of this card, in MiB; more than it has where it can't fit. */
    static int memory(GpuRequest request, Card card) {
        return request.memory().on(card.gpu.memoryMiB());
    }

    /** What a vGPU takes of this card, in percent of its compute. */
    static int cores(GpuRequest request, Card card) {
        return card.share == Share.MEMORY ? 0 : request.cores();
    }

    /** Whether a vGPU may be on this card, however much others hold of it. */
    static boolean suits(PodAsk ask, GpuRequest request, Card card) {
        int memory = memory(request, card);
        return card.open
                && (request.exclusive() || card.share != Share.EXCLUSIVE)
                && memory <= card.gpu.memoryMiB()
                && memory <= card.memoryMiB
                && cores(request, card) <= card.cores
                && ask.takes(card.gpu);
    }

    /** What a pod that asks for one vGPU takes of a GPU. */
    static Amount amount(PodAsk ask, Card card) {
        GpuRequest request = ask.containers().get(0).request();
        return new Amount(memory(request, card), cores(request, card), 1, request.exclusive());
    }

    /** Whether a GPU holds a pod that asks for one vGPU. */
    static boolean holds(PodAsk ask, GpuRoom room) {
        return holds(ask, ask.containers().get(0).request(), room);
    }

    /** Whether a GPU holds a vGPU of a container, were it the pod's only one. */
    static boolean holds(PodAsk ask, GpuRequest request, GpuRoom room) {
        return room.holds(memory(request, room.card), cores(request, room.card), 1, request.exclusive())
                && suits(ask, request, room.card);
    }

    /** Why no GPU holds the one vGPU that the pod asks for: the least that is in the way of any. */
    private static Refused refuse(PodAsk ask, GpuRequest request, List<GpuRoom> rooms) {
        Reason least = Reason.TOO_FEW_GPUS;
        for (int i = 0; i < rooms.size(); i++) {
            Reason obstacle = PodSearch.obstacle(ask, request, rooms.get(i));
            if (i == 0 || obstacle.compareTo(least) > 0) {
                least = obstacle;
            }
        }
        return ask.refusals(0).of(least);
    }
}
