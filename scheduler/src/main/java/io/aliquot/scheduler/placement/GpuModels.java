package io.aliquot.scheduler.placement;

import io.aliquot.api.GpuRequest;
import io.aliquot.api.SharingMode;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Numbers the GPU models of a cluster for {@link FreeCapacity.Shape} and {@link DemandVector}. GPUs that are allocated
 * as whole cards only count as a separate model. Thread-safe.
 */
public final class GpuModels {
    /** Number of the last model; all further models share it. */
    private static final int LAST = Long.SIZE - 1;

    private record Model(String name, boolean wholeOnly) {}

    /** @param sample the largest GPU of the model that was seen */
    private record Known(int number, GpuCapacity sample) {}

    /** Immutable; {@link #add} replaces it. Models are few and new ones are rare. */
    private volatile Map<Model, Known> models = Map.of();

    /**
     * Capacity of an empty node. Its GPU model is registered. A node with different GPUs counts as if all its GPUs were
     * like the largest, with the difference already allocated on the others.
     */
    public FreeCapacity.Shape shape(List<GpuCapacity> cards, HostResources allocatable) {
        int cpuMillis = FreeCapacity.counted(allocatable.cpuMillis());
        int memoryMiB = FreeCapacity.mebibytes(allocatable.memoryBytes());
        if (cards.isEmpty()) {
            return new FreeCapacity.Shape(cpuMillis, memoryMiB, 0, 1, 0, 0);
        }
        GpuCapacity largest = largest(cards);
        return new FreeCapacity.Shape(
                cpuMillis,
                memoryMiB,
                cards.size(),
                FreeCapacity.counted(largest.memoryMiB),
                largest.sharingMode == SharingMode.MEMORY ? FreeCapacity.UNCOUNTED : largest.cores,
                number(largest));
    }

    /** The GPU with the most memory; the list has at least one. */
    private static GpuCapacity largest(List<GpuCapacity> cards) {
        GpuCapacity largest = cards.get(0);
        for (GpuCapacity card : cards) {
            largest = larger(largest, card);
        }
        return largest;
    }

    /** The GPU with more memory; the first one if both have the same. */
    static GpuCapacity larger(GpuCapacity one, GpuCapacity other) {
        return other.memoryMiB > one.memoryMiB ? other : one;
    }

    private int number(GpuCapacity card) {
        var model = new Model(card.gpu.model(), card.sharingMode == SharingMode.EXCLUSIVE);
        Known known = models.get(model);
        return known != null && known.sample().vgpuMiB >= card.vgpuMiB ? known.number() : add(model, card);
    }

    private synchronized int add(Model model, GpuCapacity card) {
        Map<Model, Known> more = new LinkedHashMap<>(models);
        Known known = more.get(model);
        int number = known == null ? Math.min(more.size(), LAST) : known.number();
        more.put(model, new Known(number, card));
        models = more;
        return number;
    }

    /** A pod's demand on any node: its shares are computed for the GPU with the most memory that the pod accepts. */
    public DemandVector demand(PodGpuRequest ask) {
        int memoryMiB = 1;
        for (Map.Entry<Model, Known> model : models.entrySet()) {
            if (takes(ask, model.getKey(), model.getValue())) {
                memoryMiB = Math.max(memoryMiB, model.getValue().sample().vgpuMiB);
            }
        }
        return demand(ask, memoryMiB);
    }

    /** A pod's demand on GPUs with the given memory. */
    DemandVector demand(PodGpuRequest ask, int cardMiB) {
        int cpuMillis = FreeCapacity.counted(ask.requests().cpuMillis());
        // Rounded up to a whole MiB.
        int memoryMiB = FreeCapacity.mebibytes(ask.requests().memoryBytes() + (1 << 20) - 1);
        if (ask.containers().isEmpty()) {
            return new DemandVector(cpuMillis, memoryMiB, 0, false, 0, 0, DemandVector.ANY);
        }
        var peak = new GpuAmount.Peak();
        for (ContainerGpuRequest container : ask.containers()) {
            GpuRequest request = container.request();
            int vgpus = request.vgpus();
            peak.add(
                    container.kind(),
                    (long) vgpus * request.memory().on(cardMiB),
                    vgpus * request.cores(),
                    vgpus,
                    request.exclusive());
        }
        GpuAmount all = peak.amount();
        if (all.exclusive()) {
            return new DemandVector(cpuMillis, memoryMiB, all.slots(), true, 0, 0, models(ask));
        }
        // Containers of a pod may share a GPU. The vGPUs of one container may not.
        int gpus = ask.mostVgpus();
        return new DemandVector(
                cpuMillis,
                memoryMiB,
                gpus,
                false,
                FreeCapacity.counted((all.memoryMiB() + gpus - 1) / gpus),
                (all.cores() + gpus - 1) / gpus,
                models(ask));
    }

    private long models(PodGpuRequest ask) {
        long taken = DemandVector.ANY;
        for (Map.Entry<Model, Known> model : models.entrySet()) {
            if (model.getValue().number() < LAST && !takes(ask, model.getKey(), model.getValue())) {
                taken &= ~(1L << model.getValue().number());
            }
        }
        return taken;
    }

    private static boolean takes(PodGpuRequest ask, Model model, Known known) {
        return ask.takesModel(known.sample().gpu)
                && (!model.wholeOnly()
                        || ask.containers().stream()
                                .allMatch(one -> one.request().exclusive()));
    }
}
