package io.aliquot.scheduler.explain;

import io.aliquot.api.nodes.GpuHealth.Unhealthy;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.scheduler.explain.Explanation.GpuShortfall;
import io.aliquot.scheduler.explain.Explanation.NodeShortfall;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuCapacity;
import io.aliquot.scheduler.placement.GpuInfo;
import io.aliquot.scheduler.placement.GpuSelector;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * What a node lacks to fit a pod, if evictions could help. Each container is examined as if it were alone.
 *
 * @param distance what is lacking on the GPUs that lack the least, in GPUs; nodes are sorted by it
 * @param numaOnly whether the node would fit the pod if the pod did not require one NUMA domain
 */
record Shortfall(NodeShortfall node, double distance, PendingCause cause, boolean numaOnly) {
    private static final int MAX_GPUS_IN_TEXT = 2;

    /** Distance of a missing slot: any other vGPU that ends frees one. */
    private static final double SLOT_DISTANCE = 0.1;
    /** Distance of a GPU that is allocated as a whole card: more than any GPU that is shared. */
    private static final double WHOLE_CARD_DISTANCE = 2;

    private record RankedGpu(GpuShortfall shortfall, double distance) {}

    /** Empty if a container finds fewer GPUs than vGPUs that would fit if they were free; then no eviction helps. */
    static Optional<Shortfall> of(PodGpuRequest request, HypotheticalNode free) {
        var shortfalls = new ArrayList<GpuShortfall>();
        double distance = 0;
        boolean wholeCard = false;
        for (ContainerGpuRequest container : request.containers()) {
            int vgpus = container.request().vgpus();
            List<RankedGpu> nearest = free.gpus().stream()
                    .filter(gpu -> GpuSelector.holdsWhenEmpty(request, container.request(), gpu.capacity()))
                    .map(gpu -> rank(container, gpu))
                    .sorted(Comparator.comparingDouble(RankedGpu::distance)
                            .thenComparing(ranked -> ranked.shortfall().gpu()))
                    .limit(vgpus)
                    .toList();
            if (nearest.size() < vgpus) {
                return Optional.empty();
            }
            for (RankedGpu ranked : nearest) {
                if (ranked.distance() > 0) {
                    distance += ranked.distance();
                    wholeCard |= container.request().exclusive() || ranked.distance() >= WHOLE_CARD_DISTANCE;
                    shortfalls.add(ranked.shortfall());
                }
            }
        }
        boolean numaOnly =
                shortfalls.isEmpty() && request.requiresOneNumaDomain() && free.fits(request.withoutNumaRequirement());
        return Optional.of(new Shortfall(
                new NodeShortfall(free.node(), shortfalls), distance, cause(shortfalls, wholeCard), numaOnly));
    }

    private static PendingCause cause(List<GpuShortfall> shortfalls, boolean wholeCard) {
        if (shortfalls.isEmpty()) {
            return PendingCause.TOGETHER;
        }
        if (wholeCard) {
            return PendingCause.WHOLE_CARD;
        }
        if (shortfalls.stream().anyMatch(shortfall -> shortfall.memoryMiB() > 0)) {
            return PendingCause.MEMORY;
        }
        return shortfalls.stream().anyMatch(shortfall -> shortfall.cores() > 0)
                ? PendingCause.CORES
                : PendingCause.SLOTS;
    }

    /** What each GPU lacks, for each container. */
    static List<GpuShortfall> ofGpus(PodGpuRequest pod, HypotheticalNode free) {
        var shortfalls = new ArrayList<GpuShortfall>();
        for (ContainerGpuRequest container : pod.containers()) {
            for (GpuInfo gpu : free.gpus()) {
                if (GpuSelector.holdsWhenEmpty(pod, container.request(), gpu.capacity())) {
                    shortfalls.add(rank(container, gpu).shortfall());
                } else {
                    String text = whyNeverFits(pod, container.request(), gpu.capacity());
                    shortfalls.add(new GpuShortfall(container.name(), gpu.gpu().uuid(), text, 0, 0, 0));
                }
            }
        }
        return shortfalls;
    }

    /** What is wrong with each unhealthy GPU that a container would fit on if it were healthy and free. */
    static Stream<Unhealthy> unhealthyGpus(PodGpuRequest pod, HypotheticalNode free) {
        return free.gpus().stream()
                .map(GpuInfo::capacity)
                .filter(card -> !card.gpu().healthy())
                .filter(card -> pod.containers().stream()
                        .anyMatch(container ->
                                GpuSelector.holdsWhenEmpty(pod, container.request(), card.asSchedulable())))
                .flatMap(card -> card.gpu().health().unhealthy().stream());
    }

    private static String whyNeverFits(PodGpuRequest pod, GpuRequest request, GpuCapacity card) {
        if (!pod.takes(card.gpu())) {
            return "is excluded by the pod's annotations (model, UUID or index)";
        }
        if (!card.admits(request)) {
            return card.gpu()
                    .instance()
                    .map(instance -> "is a MIG instance " + instance.profile())
                    .orElse(request.profile().isEmpty() ? "is allocated as a whole card only" : "is no MIG instance");
        }
        Optional<Unhealthy> unhealthy = card.gpu().health().unhealthy();
        if (unhealthy.isPresent()) {
            return "is " + unhealthy.get().describe();
        }
        if (card.cordoned()) {
            return "is cordoned";
        }
        if (!card.gpu().heldBy().isEmpty()) {
            return "is " + card.gpu().heldBy().get(0).print();
        }
        return card.cores(request) > card.cores()
                ? "has at most " + card.cores() + " % of its cores for vGPUs"
                : "has at most " + card.vgpuMiB() + " MiB for a vGPU";
    }

    private static RankedGpu rank(ContainerGpuRequest container, GpuInfo free) {
        GpuRequest request = container.request();
        GpuCapacity card = free.capacity();
        GpuAmount allocated = free.allocated();
        String gpu = card.gpu().uuid();
        if (allocated.exclusive()) {
            String text = "is allocated as a whole " + (card.gpu().instance().isPresent() ? "instance" : "card");
            return new RankedGpu(
                    new GpuShortfall(container.name(), gpu, text, allocated.memoryMiB(), 0, 1), WHOLE_CARD_DISTANCE);
        }
        if (card.givesWhole(request)) {
            boolean empty = allocated.slots() == 0;
            double memoryRatio = (double) allocated.memoryMiB() / card.memoryMiB();
            var shortfall = new GpuShortfall(
                    container.name(),
                    gpu,
                    empty ? "" : "already has " + plural(allocated.slots(), "vGPU"),
                    allocated.memoryMiB(),
                    allocated.cores(),
                    allocated.slots());
            return new RankedGpu(shortfall, empty ? 0 : 1 + memoryRatio);
        }
        long freeMiB = Math.max(0, card.memoryMiB() - allocated.memoryMiB());
        long memoryMiB = Math.max(0, card.memoryMiB(request) - freeMiB);
        int cores = Math.max(0, card.cores(request) - Math.max(0, card.cores() - allocated.cores()));
        int slots = allocated.slots() < card.slots() ? 0 : 1;
        double distance = (double) memoryMiB / card.memoryMiB() + (double) cores / card.cores() + slots * SLOT_DISTANCE;
        return new RankedGpu(
                new GpuShortfall(container.name(), gpu, lacks(memoryMiB, cores, slots), memoryMiB, cores, slots),
                distance);
    }

    private static String lacks(long memoryMiB, int cores, int slots) {
        var parts = new ArrayList<String>();
        if (memoryMiB > 0) {
            parts.add(memoryMiB + " MiB");
        }
        if (cores > 0) {
            parts.add(cores + " % of its cores");
        }
        if (slots > 0) {
            parts.add("a slot");
        }
        return parts.isEmpty() ? "" : "lacks " + String.join(" and ", parts);
    }

    /** A clause for the summary, such as "GPU-… lacks 2000 MiB". */
    String text() {
        if (numaOnly) {
            return "the GPUs that would fit are in different NUMA domains";
        }
        return node.gpus().isEmpty()
                ? "each vGPU fits alone, but not all of them together"
                : node.gpus().stream()
                        .limit(MAX_GPUS_IN_TEXT)
                        .map(shortfall -> shortfall.gpu() + " " + shortfall.text())
                        .collect(Collectors.joining(", "));
    }

    private static String plural(int count, String noun) {
        return count + " " + noun + (count == 1 ? "" : "s");
    }
}
