package io.aliquot.scheduler.placement;

import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.pods.GpuRequest;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Numbers the GPU models of a cluster for {@link FreeCapacity.Shape} and {@link DemandVector}. GPUs that are allocated as
 * whole cards only count as a model of their own. Thread-safe.
 */
public final class GpuModels {
    /** The last number; all models beyond 63 share it, and nothing is stored of them. */
    private static final int LAST = Long.SIZE - 1;

    private record Model(String name, boolean wholeOnly) {}

    /**
     * A model that nodes have.
     *
     * @param sample of the model; the largest that was seen
     * @param nodes how many
     */
    private record Known(int number, GpuCapacity sample, int nodes) {}

    /** Replaced as a whole, since new models are rare. */
    private volatile Map<Model, Known> models = Map.of();

    /**
     * Capacity of a node without pods; registers the model of its GPUs until {@link #release}. On a node with different GPUs
     * all count as the largest one, of which the others lack a part from the start.
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

    /** The first of the largest; {@code cards} must not be empty. */
    private static GpuCapacity largest(List<GpuCapacity> cards) {
        GpuCapacity largest = cards.get(0);
        for (GpuCapacity card : cards) {
            largest = larger(largest, card);
        }
        return largest;
    }

    /** The larger one; the first if they are equal. Of a GPU for shares and one for whole cards the former, which takes both. */
    static GpuCapacity larger(GpuCapacity one, GpuCapacity other) {
        boolean whole = one.sharingMode == SharingMode.EXCLUSIVE;
        if (whole != (other.sharingMode == SharingMode.EXCLUSIVE)) {
            return whole ? other : one;
        }
        return other.memoryMiB > one.memoryMiB ? other : one;
    }

    private static Model model(GpuCapacity card) {
        return new Model(card.gpu.model(), card.sharingMode == SharingMode.EXCLUSIVE);
    }

    private synchronized int number(GpuCapacity card) {
        Model model = model(card);
        Known known = models.get(model);
        int number = known == null ? lowestFree() : known.number();
        if (number < LAST) {
            Map<Model, Known> more = new LinkedHashMap<>(models);
            more.put(
                    model,
                    known == null
                            ? new Known(number, card, 1)
                            : new Known(
                                    number,
                                    known.sample().vgpuMiB >= card.vgpuMiB ? known.sample() : card,
                                    known.nodes() + 1));
            models = more;
        }
        return number;
    }

    private int lowestFree() {
        long used = models.values().stream()
                .mapToLong(known -> 1L << known.number())
                .sum();
        return Math.min(LAST, Long.numberOfTrailingZeros(~used));
    }

    /**
     * Forgets the model of these GPUs if no other node has it; its number may be given to another one.
     *
     * @param shape what {@link #shape} returned for them
     */
    public synchronized void release(List<GpuCapacity> cards, FreeCapacity.Shape shape) {
        if (cards.isEmpty() || shape.model() == LAST) {
            return;
        }
        Map<Model, Known> fewer = new LinkedHashMap<>(models);
        fewer.computeIfPresent(
                model(largest(cards)),
                (model, known) ->
                        known.nodes() == 1 ? null : new Known(known.number(), known.sample(), known.nodes() - 1));
        models = fewer;
    }

    /** How many models are stored; for tests. */
    int size() {
        return models.size();
    }

    /** The demand of a pod on any node; percentages are of the largest GPU that it accepts. */
    public DemandVector demand(PodGpuRequest request) {
        int memoryMiB = 1;
        for (Map.Entry<Model, Known> model : models.entrySet()) {
            if (takes(request, model.getValue())) {
                memoryMiB = Math.max(memoryMiB, model.getValue().sample().vgpuMiB);
            }
        }
        return demand(request, memoryMiB);
    }

    /** The demand of a pod on GPUs of this size. */
    DemandVector demand(PodGpuRequest request, int cardMiB) {
        int cpuMillis = FreeCapacity.counted(request.hostRequests().cpuMillis());
        // Rounded up to whole MiB.
        int memoryMiB = FreeCapacity.mebibytes(request.hostRequests().memoryBytes() + (1 << 20) - 1);
        if (request.containers().isEmpty()) {
            return new DemandVector(cpuMillis, memoryMiB, 0, false, 0, 0, DemandVector.ANY);
        }
        var peak = new GpuAmount.Peak();
        for (ContainerGpuRequest container : request.containers()) {
            GpuRequest requested = container.request();
            int vgpus = requested.vgpus();
            peak.add(
                    container.kind(),
                    (long) vgpus * requested.memory().on(cardMiB),
                    vgpus * requested.cores(),
                    vgpus,
                    requested.exclusive());
        }
        GpuAmount all = peak.amount();
        if (all.exclusive()) {
            return new DemandVector(cpuMillis, memoryMiB, all.slots(), true, 0, 0, models(request));
        }
        // Containers may share a GPU, but the vGPUs of one container are on different GPUs.
        int gpus = request.mostVgpus();
        return new DemandVector(
                cpuMillis,
                memoryMiB,
                gpus,
                false,
                FreeCapacity.counted((all.memoryMiB() + gpus - 1) / gpus),
                (all.cores() + gpus - 1) / gpus,
                models(request));
    }

    private long models(PodGpuRequest request) {
        long taken = DemandVector.ANY;
        for (Map.Entry<Model, Known> model : models.entrySet()) {
            if (!takes(request, model.getValue())) {
                taken &= ~(1L << model.getValue().number());
            }
        }
        return taken;
    }

    private static boolean takes(PodGpuRequest request, Known known) {
        return request.takesModel(known.sample().gpu)
                && request.containers().stream().allMatch(one -> known.sample().admits(one.request()));
    }
}
