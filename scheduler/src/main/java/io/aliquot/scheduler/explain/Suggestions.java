package io.aliquot.scheduler.explain;

import io.aliquot.api.Annotations;
import io.aliquot.api.GpuRequest;
import io.aliquot.api.MemoryRequest;
import io.aliquot.api.MemoryRequest.Mebibytes;
import io.aliquot.api.MemoryRequest.Percentage;
import io.aliquot.api.MemoryRequest.WholeCard;
import io.aliquot.api.Numa;
import io.aliquot.api.Resources;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.function.IntFunction;

/**
 * Finds smaller requests with which a pod would fit now. Each suggestion lowers one number of one container by as
 * little as possible. The placement code itself verifies it, so that a pod that follows a suggestion does fit.
 */
final class Suggestions {
    private final PodGpuRequest pod;
    private final List<NodeFreeCapacity> nodes;
    private final List<String> suggestions = new ArrayList<>();

    Suggestions(PodGpuRequest pod, List<NodeFreeCapacity> nodes) {
        this.pod = pod;
        this.nodes = nodes;
    }

    List<String> find() {
        for (ContainerGpuRequest container : pod.containers()) {
            GpuRequest request = container.request();
            int vgpus = request.vgpus();
            int cores = request.cores();
            MemoryRequest memory = request.memory();
            boolean exclusive = request.exclusive();
            switch (memory) {
                case Percentage(int percent) ->
                    suggest(
                            container,
                            Resources.MEMORY_PERCENTAGE,
                            1,
                            percent,
                            less -> new GpuRequest(vgpus, new Percentage(less), cores, exclusive));
                case Mebibytes(int amount) -> suggestMebibytes(container, amount, "" + amount);
                case WholeCard() ->
                    suggestMebibytes(
                            container, largestMiB() + 1, exclusive ? "a whole card" : "all of a GPU's memory");
            }
            suggest(container, Resources.CORES, 0, cores, less -> new GpuRequest(vgpus, memory, less, exclusive));
            suggest(container, Resources.GPU, 1, vgpus, less -> new GpuRequest(less, memory, cores, exclusive));
        }
        if (pod.requiresOneNumaDomain() && fits(pod.withoutNumaRequirement())) {
            suggestions.add(Annotations.NUMA + ": " + Numa.PREFERRED.print() + " instead of " + Numa.REQUIRED.print());
        }
        if (fits(PodGpuRequest.of(pod.containers(), Map.of(), pod.preferences()))) {
            suggestions.add("no annotations that select GPUs");
        }
        return suggestions;
    }

    private void suggestMebibytes(ContainerGpuRequest container, int limit, String current) {
        GpuRequest request = container.request();
        suggest(
                container,
                Resources.MEMORY,
                1,
                limit,
                current,
                less -> new GpuRequest(request.vgpus(), new Mebibytes(less), request.cores(), false));
    }

    private void suggest(
            ContainerGpuRequest container, String resource, int least, int current, IntFunction<GpuRequest> with) {
        suggest(container, resource, least, current, "" + current, with);
    }

    /** Suggests the largest amount of the resource, at least {@code least} and below {@code limit}, that fits. */
    private void suggest(
            ContainerGpuRequest container,
            String resource,
            int least,
            int limit,
            String current,
            IntFunction<GpuRequest> with) {
        String prefix = pod.containers().size() > 1 ? "container " + container.name() + " with " : "";
        largestFitting(least, limit, amount -> with(container, with.apply(amount)))
                .ifPresent(amount ->
                        suggestions.add(prefix + resource + ": " + amount + " instead of " + current));
    }

    private int largestMiB() {
        return nodes.stream()
                .flatMap(node -> node.gpus().stream())
                .mapToInt(gpu -> gpu.gpu().memoryMiB())
                .max()
                .orElse(0);
    }

    private PodGpuRequest with(ContainerGpuRequest container, GpuRequest request) {
        return pod.with(pod.containers().stream()
                .map(one -> one.equals(container) ? new ContainerGpuRequest(one.name(), one.kind(), request) : one)
                .toList());
    }

    /**
     * The largest number from {@code least} below {@code limit} with which the pod fits. Binary search: a pod that
     * fits with a number also fits with every smaller one.
     */
    private OptionalInt largestFitting(int least, int limit, IntFunction<PodGpuRequest> with) {
        int fitting = -1;
        int low = least;
        int high = limit - 1;
        while (low <= high) {
            int middle = (low + high) >>> 1;
            if (fits(with.apply(middle))) {
                fitting = middle;
                low = middle + 1;
            } else {
                high = middle - 1;
            }
        }
        return fitting < 0 ? OptionalInt.empty() : OptionalInt.of(fitting);
    }

    private boolean fits(PodGpuRequest request) {
        return nodes.stream().anyMatch(node -> node.fits(request));
    }
}
