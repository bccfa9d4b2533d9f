package io.aliquot.scheduler.explain;

import io.aliquot.api.GpuRequest;
import io.aliquot.api.SharingMode;
import io.aliquot.scheduler.explain.Explanation.Lack;
import io.aliquot.scheduler.explain.Explanation.Near;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuCapacity;
import io.aliquot.scheduler.placement.GpuFreeCapacity;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.stream.Collectors;

/**
 * A node that a pod would fit on if others left, and how far it is from that: what is missing, on the GPUs where least
 * is, in parts of a GPU. Each container is looked at as if it were alone.
 *
 * @param domains whether nothing is missing but that the GPUs with room hang on one NUMA domain
 */
record Shortfall(Near near, double distance, PendingCause cause, boolean domains) {
    private static final double SLOT = 0.1;
    private static final double SOMEBODYS = 2;

    private record Gap(Lack lack, double distance) {}

    /** Empty where a container finds too few GPUs that would do if they were free. */
    static Optional<Shortfall> of(PodGpuRequest ask, NodeView view, NodeFreeCapacity rooms) {
        var lacks = new ArrayList<Lack>();
        double distance = 0;
        boolean whole = false;
        for (ContainerGpuRequest container : ask.containers()) {
            int vgpus = container.request().vgpus();
            List<Gap> gaps = rooms.list().stream()
                    .filter(room -> suits(ask, container.request(), room.card()))
                    .map(room -> gap(container, room))
                    .sorted(Comparator.comparingDouble(Gap::distance)
                            .thenComparing(gap -> gap.lack().gpu()))
                    .limit(vgpus)
                    .toList();
            if (gaps.size() < vgpus) {
                return Optional.empty();
            }
            for (Gap gap : gaps) {
                if (gap.distance() > 0) {
                    distance += gap.distance();
                    whole |= container.request().exclusive() || gap.distance() >= SOMEBODYS;
                    lacks.add(gap.lack());
                }
            }
        }
        boolean domains = lacks.isEmpty() && ask.oneDomain() && rooms.hold(ask.inAnyDomains());
        return Optional.of(new Shortfall(new Near(view.name(), lacks), distance, cause(lacks, whole), domains));
    }

    private static PendingCause cause(List<Lack> lacks, boolean whole) {
        if (lacks.isEmpty()) {
            return PendingCause.TOGETHER;
        }
        if (whole) {
            return PendingCause.WHOLE_CARD;
        }
        if (lacks.stream().anyMatch(lack -> lack.memoryMiB() > 0)) {
            return PendingCause.MEMORY;
        }
        return lacks.stream().anyMatch(lack -> lack.cores() > 0) ? PendingCause.CORES : PendingCause.SLOTS;
    }

    /** Whether the GPU would do if nobody held anything of it. */
    private static boolean suits(PodGpuRequest ask, GpuRequest request, GpuCapacity card) {
        return card.gpu().healthy()
                && !card.cordoned()
                && (request.exclusive() || card.share() != SharingMode.EXCLUSIVE)
                && request.memory().on(card.vgpuMiB()) <= card.vgpuMiB()
                && cores(request, card) <= card.cores()
                && ask.takes(card.gpu());
    }

    static List<Lack> gpuByGpu(PodGpuRequest ask, NodeFreeCapacity rooms) {
        var lacks = new ArrayList<Lack>();
        for (ContainerGpuRequest container : ask.containers()) {
            for (GpuFreeCapacity room : rooms.list()) {
                if (suits(ask, container.request(), room.card())) {
                    lacks.add(gap(container, room).lack());
                } else {
                    String why = unsuitable(ask, container.request(), room.card());
                    lacks.add(new Lack(container.name(), room.gpu().uuid(), why, 0, 0, 0));
                }
            }
        }
        return lacks;
    }

    private static String unsuitable(PodGpuRequest ask, GpuRequest request, GpuCapacity card) {
        if (!ask.takes(card.gpu())) {
            return "is not one that the pod takes, by its model or UUID";
        }
        if (!request.exclusive() && card.share() == SharingMode.EXCLUSIVE) {
            return "is given as a whole card only";
        }
        if (!card.gpu().healthy()) {
            return "is unhealthy";
        }
        if (card.cordoned()) {
            return "is cordoned";
        }
        return cores(request, card) > card.cores()
                ? "has " + card.cores() + " % for shares at most"
                : "has " + card.vgpuMiB() + " MiB at most";
    }

    private static int cores(GpuRequest request, GpuCapacity card) {
        return card.share() == SharingMode.MEMORY ? 0 : request.cores();
    }

    private static Gap gap(ContainerGpuRequest container, GpuFreeCapacity room) {
        GpuRequest request = container.request();
        GpuCapacity card = room.card();
        GpuAmount taken = room.taken();
        String gpu = card.gpu().uuid();
        if (taken.exclusive()) {
            return new Gap(
                    new Lack(container.name(), gpu, "is somebody's whole card", taken.memoryMiB(), 0, 1), SOMEBODYS);
        }
        if (request.exclusive()) {
            boolean free = taken.slots() == 0;
            double full = (double) taken.memoryMiB() / card.memoryMiB();
            return new Gap(
                    new Lack(
                            container.name(),
                            gpu,
                            free ? "" : "is shared by " + plural(taken.slots(), "vGPU") + " already",
                            taken.memoryMiB(),
                            taken.cores(),
                            taken.slots()),
                    free ? 0 : 1 + full);
        }
        long memory =
                Math.max(0, request.memory().on(card.vgpuMiB()) - Math.max(0, card.memoryMiB() - taken.memoryMiB()));
        int cores = Math.max(0, cores(request, card) - Math.max(0, card.cores() - taken.cores()));
        int slots = taken.slots() < card.slots() ? 0 : 1;
        double distance = (double) memory / card.memoryMiB() + (double) cores / card.cores() + slots * SLOT;
        return new Gap(new Lack(container.name(), gpu, words(memory, cores, slots), memory, cores, slots), distance);
    }

    private static String words(long memory, int cores, int slots) {
        var missing = new ArrayList<String>();
        if (memory > 0) {
            missing.add(memory + " MiB");
        }
        if (cores > 0) {
            missing.add(cores + " % of its cores");
        }
        if (slots > 0) {
            missing.add("a slot");
        }
        return missing.isEmpty() ? "" : "lacks " + String.join(" and ", missing);
    }

    /** For a sentence. */
    String words() {
        if (domains) {
            return "its GPUs would hold it, but not those of one NUMA domain";
        }
        return near.lacks().isEmpty()
                ? "each vGPU would fit, but not all of them together"
                : near.lacks().stream()
                        .limit(2)
                        .map(lack -> lack.gpu() + " " + lack.text())
                        .collect(Collectors.joining(", "));
    }

    private static String plural(int count, String noun) {
        return count + " " + noun + (count == 1 ? "" : "s");
    }
}
