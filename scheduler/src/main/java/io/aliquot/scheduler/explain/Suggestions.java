package io.aliquot.scheduler.explain;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.api.pods.MemoryRequest.Mebibytes;
import io.aliquot.api.pods.MemoryRequest.Percentage;
import io.aliquot.api.pods.MemoryRequest.WholeCard;
import io.aliquot.api.pods.Numa;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.FitCheck;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.IntFunction;

/**
 * Finds smaller requests with which a pod would fit now. Each suggestion lowers one number of one container by as
 * little as possible. The placement code itself verifies it, so that a pod that follows a suggestion does fit.
 */
final class Suggestions {
    /** Containers for which a smaller request is searched; each costs up to 30 checks of all nodes. */
    private static final int MAX_CONTAINERS = 8;
    /** Attempts to assign a GPU for one check of all nodes; 40 ns each. */
    private static final int ATTEMPTS = 1 << 13;

    private final PodGpuRequest pod;
    private final List<HypotheticalNode> nodes;
    private final List<String> suggestions = new ArrayList<>();

    Suggestions(PodGpuRequest pod, List<HypotheticalNode> nodes) {
        this.pod = pod;
        this.nodes = nodes;
    }

    List<String> find() {
        for (ContainerGpuRequest container :
                pod.containers().stream().limit(MAX_CONTAINERS).toList()) {
            GpuRequest request = container.request();
            int vgpus = request.vgpus();
            if (!request.profile().isEmpty()) {
                String resource = Resources.INSTANCE_GROUP + request.profile();
                suggest(
                        container,
                        resource,
                        1,
                        vgpus,
                        less -> new GpuRequest(less, request.memory(), 0, true, request.profile()));
                continue;
            }
            int cores = request.cores();
            MemoryRequest memory = request.memory();
            boolean exclusive = request.exclusive();
            IntFunction<GpuRequest> withMiB = mib -> new GpuRequest(vgpus, new Mebibytes(mib), cores, false);
            IntFunction<GpuRequest> withPercent =
                    percent -> new GpuRequest(vgpus, new Percentage(percent), cores, exclusive);
            switch (memory) {
                case Percentage(int percent) ->
                    suggest(container, Resources.MEMORY_PERCENTAGE, 1, percent, withPercent);
                case Mebibytes(int mib) -> suggest(container, Resources.MEMORY, 1, mib, withMiB);
                case WholeCard() -> {
                    String current = exclusive ? "a whole card" : "all of a GPU's memory";
                    suggest(container, Resources.MEMORY, 1, largestMiB() + 1, current, withMiB);
                }
            }
            suggest(container, Resources.CORES, 0, cores, less -> new GpuRequest(vgpus, memory, less, exclusive));
            suggest(container, Resources.VGPU, 1, vgpus, less -> new GpuRequest(less, memory, cores, exclusive));
        }
        if (pod.requiresOneNumaDomain() && fits(pod.withoutNumaRequirement())) {
            suggestions.add(Annotations.NUMA + ": " + Numa.PREFERRED.print() + " instead of " + Numa.REQUIRED.print());
        }
        if (fits(PodGpuRequest.of(pod.containers(), Map.of(), pod.preferences()))) {
            suggestions.add("no annotations that select GPUs");
        }
        return suggestions;
    }

    private void suggest(
            ContainerGpuRequest container, String resource, int least, int current, IntFunction<GpuRequest> with) {
        suggest(container, resource, least, current, "" + current, with);
    }

    /**
     * Suggests the largest amount of the resource, at least {@code least} and below {@code limit}, with which the pod
     * fits. Binary search: a pod that fits with an amount also fits with every smaller one.
     */
    private void suggest(
            ContainerGpuRequest container,
            String resource,
            int least,
            int limit,
            String current,
            IntFunction<GpuRequest> with) {
        int low = least;
        int high = limit;
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (fits(with(container, with.apply(middle)))) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if (low > least) {
            String prefix = pod.containers().size() > 1 ? "container " + container.name() + " with " : "";
            suggestions.add(prefix + resource + ": " + (low - 1) + " instead of " + current);
        }
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

    private boolean fits(PodGpuRequest request) {
        var check = new FitCheck(request, ATTEMPTS);
        return nodes.stream().anyMatch(node -> check.fits(node.gpus()));
    }
}
