package io.aliquot.scheduler.simulate;

import io.aliquot.api.Gpu;
import io.aliquot.api.GpuRequest;
import io.aliquot.scheduler.placement.Demand;
import io.aliquot.scheduler.placement.Room;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** A trace's nodes and pods in the units that {@link Replay} counts in. */
final class Rooms {
    /** As many as there are bits. */
    private static final int MOST_MODELS = 64;

    private final List<Gpu> models;
    private final List<Room.Shape> shapes;

    /** @throws TraceException where nodes are not all of GPUs that are alike */
    Rooms(Trace trace) {
        this.models = List.copyOf(trace.nodes().stream()
                .map(Rooms::first)
                .collect(Collectors.toMap(Gpu::model, gpu -> gpu, (one, other) -> one, LinkedHashMap::new))
                .values());
        if (models.size() > MOST_MODELS) {
            throw new TraceException(models.size() + " models of GPUs; at most " + MOST_MODELS);
        }
        this.shapes = trace.nodes().stream().map(this::shape).toList();
    }

    private static Gpu first(Node node) {
        return node.facts().inventory().gpus().get(0);
    }

    List<Room.Shape> shapes() {
        return shapes;
    }

    private Room.Shape shape(Node node) {
        Gpu gpu = first(node);
        return new Room.Shape(
                (int) node.facts().allocatable().cpuMillis(),
                mebibytes(node.facts().allocatable().memoryBytes()),
                node.facts().inventory().gpus().size(),
                gpu.memoryMiB(),
                0,
                IntStream.range(0, models.size())
                        .filter(i -> models.get(i).model().equals(gpu.model()))
                        .findFirst()
                        .orElseThrow());
    }

    Demand demand(Pod pod) {
        int cpu = (int) pod.requests().cpuMillis();
        int memory = mebibytes(pod.requests().memoryBytes());
        if (pod.ask().containers().isEmpty()) {
            return new Demand(cpu, memory, 0, false, 0, 0, Demand.ANY);
        }
        GpuRequest request = pod.ask().containers().get(0).request();
        return new Demand(
                cpu,
                memory,
                request.vgpus(),
                request.exclusive(),
                request.exclusive() ? 0 : request.memory().on(Trace.WHOLE),
                0,
                takes(pod));
    }

    private long takes(Pod pod) {
        long takes = 0;
        boolean all = true;
        for (int i = 0; i < models.size(); i++) {
            if (pod.ask().takes(models.get(i))) {
                takes |= 1L << i;
            } else {
                all = false;
            }
        }
        return all ? Demand.ANY : takes;
    }

    private static int mebibytes(long bytes) {
        return (int) (bytes >> 20);
    }
}
