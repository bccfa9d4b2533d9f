package io.aliquot.scheduler.placement;

import io.aliquot.api.GpuRequest;
import io.aliquot.api.Placement;
import io.aliquot.api.SharingMode;
import io.aliquot.api.Vgpu;
import io.aliquot.api.Vgpus;
import io.aliquot.scheduler.placement.GpuSelection.Fits;
import io.aliquot.scheduler.placement.GpuSelection.Glance;
import io.aliquot.scheduler.placement.GpuSelection.Refused;
import io.aliquot.scheduler.placement.RefusalReasons.Reason;
import java.util.List;
import java.util.Map;

/*
 * A pod with one GPU container, nearly every pod, fits if and only if enough GPUs hold a vGPU of it (of one NUMA
 * domain, where it requires that); for one vGPU that is a loop over the GPUs that allocates nothing but its answer.
 * PodGpuSelector selects for all other pods.
 */
/** Chooses a pod's GPUs among those of one node. */
public final class GpuSelector {
    private GpuSelector() {}

    /**
     * Whether a pod fits, and how full the node's GPUs would then be. Fits if and only if {@link #select} chooses; on a
     * node with different cards that is chosen from by links, the fullness may be another.
     *
     * @param rooms every GPU of the node, in its order
     * @param policy which GPU to take first among those that hold a container
     */
    public static Glance feasible(PodGpuRequest ask, List<GpuFreeCapacity> rooms, Placement policy) {
        if (!ask.wantsOneGpu()) {
            return new PodGpuSelector(ask, rooms, policy, ask.containers().size() != 1).quickCheck();
        }
        int best = best(ask, rooms, policy);
        return best < 0 ? refuse(ask, rooms) : new Fits(fullness(ask, rooms, best));
    }

    /**
     * Chooses.
     *
     * @param rooms every GPU of the node, in its order
     * @param policy which GPU to take first among those that hold a container
     */
    public static GpuSelection select(PodGpuRequest ask, List<GpuFreeCapacity> rooms, Placement policy) {
        if (!ask.wantsOneGpu()) {
            return new PodGpuSelector(ask, rooms, policy, true).selection();
        }
        int best = best(ask, rooms, policy);
        return best < 0 ? refuse(ask, rooms) : on(best, ask, rooms);
    }

    /** What a pod that asks for one vGPU gets of this GPU, which holds it. */
    public static GpuSelection.Selected on(int gpu, PodGpuRequest ask, List<GpuFreeCapacity> rooms) {
        ContainerGpuRequest container = ask.containers().get(0);
        Vgpu vgpu = vgpu(ask, container.request(), rooms.get(gpu).card);
        return new GpuSelection.Selected(
                Map.of(container.name(), new Vgpus(List.of(vgpu))),
                Map.of(vgpu.uuid(), GpuAmount.of(vgpu)),
                fullness(ask, rooms, gpu));
    }

    /** The GPU that the policy likes best for the one vGPU that the pod asks for; -1 where none holds it. */
    private static int best(PodGpuRequest ask, List<GpuFreeCapacity> rooms, Placement policy) {
        int best = -1;
        for (int gpu = 0; gpu < rooms.size(); gpu++) {
            GpuFreeCapacity room = rooms.get(gpu);
            if (holds(ask, room) && (best < 0 || ContainerGpuSelector.byPolicy(policy, room, rooms.get(best)) < 0)) {
                best = gpu;
            }
        }
        return best;
    }

    /** Of the node, once this GPU holds the one vGPU that the pod asks for. */
    private static double fullness(PodGpuRequest ask, List<GpuFreeCapacity> rooms, int gpu) {
        long fullness = 0;
        for (int i = 0; i < rooms.size(); i++) {
            fullness += rooms.get(i).fullness;
        }
        GpuFreeCapacity room = rooms.get(gpu);
        GpuRequest request = ask.containers().get(0).request();
        fullness += room.fullnessWith(memory(request, room.card), cores(request, room.card), request.exclusive())
                - room.fullness;
        return (double) fullness / GpuFreeCapacity.FULL / rooms.size();
    }

    /** A container's vGPU on this card. */
    static Vgpu vgpu(PodGpuRequest ask, GpuRequest request, GpuCapacity card) {
        return new Vgpu(
                card.gpu.uuid(),
                memory(request, card),
                cores(request, card),
                ask.corePolicy(),
                ask.priority(),
                card.gpu.contextMiB(),
                request.exclusive());
    }

    /** What a vGPU takes of this card, in MiB; more than it has where it can't fit. */
    static int memory(GpuRequest request, GpuCapacity card) {
        return request.memory().on(card.vgpuMiB);
    }

    /** What a vGPU takes of this card, in percent of its compute. */
    static int cores(GpuRequest request, GpuCapacity card) {
        return card.share == SharingMode.MEMORY ? 0 : request.cores();
    }

    /** Whether a vGPU may be on this card, however much others hold of it. */
    static boolean suits(PodGpuRequest ask, GpuRequest request, GpuCapacity card) {
        return card.open
                && (request.exclusive() || card.share != SharingMode.EXCLUSIVE)
                && memory(request, card) <= card.vgpuMiB
                && cores(request, card) <= card.cores
                && ask.takes(card.gpu);
    }

    /** Whether a GPU holds a pod that asks for one vGPU. */
    static boolean holds(PodGpuRequest ask, GpuFreeCapacity room) {
        return holds(ask, ask.containers().get(0).request(), room);
    }

    /** Whether a GPU holds a vGPU of a container, were it the pod's only one. */
    static boolean holds(PodGpuRequest ask, GpuRequest request, GpuFreeCapacity room) {
        return room.holds(memory(request, room.card), cores(request, room.card), 1, request.exclusive())
                && suits(ask, request, room.card);
    }

    /** Why no GPU holds the one vGPU that the pod asks for: the least that is in the way of any. */
    private static Refused refuse(PodGpuRequest ask, List<GpuFreeCapacity> rooms) {
        GpuRequest request = ask.containers().get(0).request();
        Reason least = Reason.TOO_FEW_GPUS;
        for (int i = 0; i < rooms.size(); i++) {
            Reason obstacle = PodGpuSelector.obstacle(ask, request, rooms.get(i));
            if (i == 0 || obstacle.compareTo(least) > 0) {
                least = obstacle;
            }
        }
        return ask.refusals(0).of(least);
    }
}
