package io.aliquot.scheduler.explain;

import io.aliquot.api.Annotations;
import io.aliquot.api.GpuRequest;
import io.aliquot.api.MemoryRequest;
import io.aliquot.api.MemoryRequest.Mebibytes;
import io.aliquot.api.MemoryRequest.Percentage;
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
 * What a pod could ask for instead and would be placed now: one number of one container made smaller, as little as will
 * do. Found by asking the chooser itself, so that what is promised holds.
 */
final class Suggestions {
    private final PodGpuRequest ask;
    private final List<NodeFreeCapacity> nodes;

    Suggestions(PodGpuRequest ask, List<NodeFreeCapacity> nodes) {
        this.ask = ask;
        this.nodes = nodes;
    }

    List<String> find() {
        var remedies = new ArrayList<String>();
        for (ContainerGpuRequest container : ask.containers()) {
            GpuRequest request = container.request();
            String whose = ask.containers().size() > 1 ? "container " + container.name() + " with " : "";
            memory(container).ifPresent(text -> remedies.add(whose + text));
            most(request.cores(), cores -> with(container, request(request, request.vgpus(), request.memory(), cores)))
                    .ifPresent(cores ->
                            remedies.add(whose + Resources.CORES + ": " + cores + " instead of " + request.cores()));
            most(
                            request.vgpus(),
                            vgpus -> vgpus == 0
                                    ? ask
                                    : with(container, request(request, vgpus, request.memory(), request.cores())))
                    .ifPresent(vgpus ->
                            remedies.add(whose + Resources.GPU + ": " + vgpus + " instead of " + request.vgpus()));
        }
        if (ask.oneDomain() && fits(ask.inAnyDomains())) {
            remedies.add(Annotations.NUMA + ": " + Numa.PREFERRED.print() + " instead of " + Numa.REQUIRED.print());
        }
        if (fits(PodGpuRequest.of(ask.containers(), Map.of(), ask.preferences()))) {
            remedies.add("no annotations that choose its GPUs");
        }
        return remedies;
    }

    private Optional<String> memory(ContainerGpuRequest container) {
        GpuRequest request = container.request();
        if (request.memory() instanceof Percentage percentage) {
            return text(
                    most(
                            percentage.percent(),
                            percent -> percent == 0
                                    ? ask
                                    : with(
                                            container,
                                            request(
                                                    request,
                                                    request.vgpus(),
                                                    new Percentage(percent),
                                                    request.cores()))),
                    Resources.MEMORY_PERCENTAGE,
                    " instead of " + percentage.percent());
        }
        int now = request.memory() instanceof Mebibytes mebibytes ? mebibytes.amount() : largestCard() + 1;
        String instead = request.memory() instanceof Mebibytes
                ? " instead of " + now
                : request.exclusive() ? " instead of a whole card" : " instead of all of a card's memory";
        return text(
                most(
                        now,
                        memory -> memory == 0
                                ? ask
                                : with(
                                        container,
                                        new GpuRequest(
                                                request.vgpus(), new Mebibytes(memory), request.cores(), false))),
                Resources.MEMORY,
                instead);
    }

    private static Optional<String> text(OptionalInt number, String resource, String instead) {
        return number.isPresent() ? Optional.of(resource + ": " + number.getAsInt() + instead) : Optional.empty();
    }

    private int largestCard() {
        return nodes.stream()
                .flatMap(node -> node.list().stream())
                .mapToInt(room -> room.gpu().memoryMiB())
                .max()
                .orElse(0);
    }

    private static GpuRequest request(GpuRequest request, int vgpus, MemoryRequest memory, int cores) {
        return new GpuRequest(vgpus, memory, cores, request.exclusive());
    }

    private PodGpuRequest with(ContainerGpuRequest container, GpuRequest request) {
        return ask.with(ask.containers().stream()
                .map(one -> one.equals(container) ? new ContainerGpuRequest(one.name(), one.kind(), request) : one)
                .toList());
    }

    /** The largest number below {@code now} with which the pod fits; with less of anything it fits all the more. */
    private OptionalInt most(int now, IntFunction<PodGpuRequest> with) {
        int fitting = -1;
        int low = 0;
        int high = now - 1;
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

    private boolean fits(PodGpuRequest other) {
        return nodes.stream().anyMatch(node -> node.hold(other));
    }
}
