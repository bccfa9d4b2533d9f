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
import java.util.Optional;
import java.util.OptionalInt;
import java.util.function.IntFunction;

/**
 * Finds smaller requests with which a pod would fit now. Each suggestion lowers one number of one container by as
 * little as possible. The placement code itself verifies it, so that a pod that follows a suggestion does fit.
 */
final class Suggestions {
    private final PodGpuRequest pod;
    private final List<NodeFreeCapacity> nodes;

    Suggestions(PodGpuRequest pod, List<NodeFreeCapacity> nodes) {
        this.pod = pod;
        this.nodes = nodes;
    }

    List<String> find() {
        var suggestions = new ArrayList<String>();
        for (ContainerGpuRequest container : pod.containers()) {
            GpuRequest request = container.request();
            String prefix = pod.containers().size() > 1 ? "container " + container.name() + " with " : "";
            memory(container).ifPresent(text -> suggestions.add(prefix + text));
            cores(container)
                    .ifPresent(cores -> suggestions.add(prefix + text(Resources.CORES, cores, "" + request.cores())));
            vgpus(container)
                    .ifPresent(vgpus -> suggestions.add(prefix + text(Resources.GPU, vgpus, "" + request.vgpus())));
        }
        if (pod.requiresOneNumaDomain() && fits(pod.withoutNumaRequirement())) {
            suggestions.add(Annotations.NUMA + ": " + Numa.PREFERRED.print() + " instead of " + Numa.REQUIRED.print());
        }
        if (fits(PodGpuRequest.of(pod.containers(), Map.of(), pod.preferences()))) {
            suggestions.add("no annotations that select GPUs");
        }
        return suggestions;
    }

    private Optional<String> memory(ContainerGpuRequest container) {
        GpuRequest request = container.request();
        return switch (request.memory()) {
            case Percentage(int percent) ->
                text(Resources.MEMORY_PERCENTAGE, percentage(container, percent), Integer.toString(percent));
            case Mebibytes(int amount) ->
                text(Resources.MEMORY, mebibytes(container, amount), Integer.toString(amount));
            case WholeCard() ->
                text(
                        Resources.MEMORY,
                        mebibytes(container, largestMiB() + 1),
                        request.exclusive() ? "a whole card" : "all of a GPU's memory");
        };
    }

    private OptionalInt percentage(ContainerGpuRequest container, int current) {
        GpuRequest request = container.request();
        return largestFitting(
                1,
                current,
                percent ->
                        with(container, changed(request, request.vgpus(), new Percentage(percent), request.cores())));
    }

    private OptionalInt mebibytes(ContainerGpuRequest container, int current) {
        GpuRequest request = container.request();
        return largestFitting(
                1,
                current,
                memoryMiB -> with(
                        container, new GpuRequest(request.vgpus(), new Mebibytes(memoryMiB), request.cores(), false)));
    }

    private OptionalInt cores(ContainerGpuRequest container) {
        GpuRequest request = container.request();
        return largestFitting(
                0,
                request.cores(),
                cores -> with(container, changed(request, request.vgpus(), request.memory(), cores)));
    }

    private OptionalInt vgpus(ContainerGpuRequest container) {
        GpuRequest request = container.request();
        return largestFitting(
                1,
                request.vgpus(),
                vgpus -> with(container, changed(request, vgpus, request.memory(), request.cores())));
    }

    private static Optional<String> text(String resource, OptionalInt amount, String current) {
        return amount.isPresent() ? Optional.of(text(resource, amount.getAsInt(), current)) : Optional.empty();
    }

    private static String text(String resource, int amount, String current) {
        return resource + ": " + amount + " instead of " + current;
    }

    private int largestMiB() {
        return nodes.stream()
                .flatMap(node -> node.gpus().stream())
                .mapToInt(gpu -> gpu.gpu().memoryMiB())
                .max()
                .orElse(0);
    }

    private static GpuRequest changed(GpuRequest request, int vgpus, MemoryRequest memory, int cores) {
        return new GpuRequest(vgpus, memory, cores, request.exclusive());
    }

    private PodGpuRequest with(ContainerGpuRequest container, GpuRequest request) {
        return pod.with(pod.containers().stream()
                .map(one -> one.equals(container) ? new ContainerGpuRequest(one.name(), one.kind(), request) : one)
                .toList());
    }

    /**
     * The largest number from {@code least} to {@code current - 1} with which the pod fits. Binary search: a pod that
     * fits with a number also fits with every smaller one.
     */
    private OptionalInt largestFitting(int least, int current, IntFunction<PodGpuRequest> with) {
        int fitting = -1;
        int low = least;
        int high = current - 1;
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
