package io.aliquot.scheduler.extensionapi.objects;

import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.ApiObject;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.Column;
import io.aliquot.scheduler.extensionapi.machinery.Resource;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.Gpu;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuStatus;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuUsage;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes.Stored;
import java.time.Clock;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Function;
import org.springframework.stereotype.Component;

/** The GPUs of the nodes that share them, named by their UUID in lower case. */
@Component
public final class GpuResource extends NodesResource<Gpu> {
    private static final List<Column> COLUMNS = List.of(
            Resource.column("Name", "string", 0, "UUID of the GPU in lower case"),
            Resource.column("Node", "string", 0, "Node of the GPU"),
            Resource.column("Index", "integer", 0, "Index of the GPU on its node"),
            Resource.column("Model", "string", 0, "Model of the GPU"),
            Resource.column("Memory", "string", 0, "GPU memory used, allocated and in total, in MiB"),
            Resource.column("Cores", "string", 0, "Compute allocated and in total, in percent"),
            Resource.column("Shares", "integer", 0, "Number of pods that hold a part of the GPU"),
            Resource.column("Health", "string", 0, "Healthy, Unhealthy or Cordoned"),
            Resource.column("Reason", "string", 1, "What is wrong with an unhealthy GPU"),
            Resource.column("Age", "string", 1, "Time since the creation of the node"));

    private static final Map<String, Function<Stored<Gpu>, String>> FIELDS = Map.of(
            "metadata.name", gpu -> gpu.object().metadata().name(),
            "spec.nodeName", gpu -> gpu.node().name(),
            "status.nodeName", gpu -> gpu.node().name());

    private final UsageLookup usage;
    private final Clock clock;

    GpuResource(GpuNodes nodes, UsageLookup usage, Clock clock) {
        super("Gpu", COLUMNS, FIELDS, nodes.gpuStore(), nodes);
        this.usage = usage;
        this.clock = clock;
    }

    @Override
    public Gpu print(Stored<Gpu> stored) {
        GpuStatus status = stored.object().status();
        return new Gpu(
                stored.object().metadata(),
                new GpuStatus(
                        status.uuid(),
                        status.nodeName(),
                        status.index(),
                        status.model(),
                        status.numaNode(),
                        status.healthy(),
                        status.reason(),
                        status.since(),
                        status.cordoned(),
                        status.wholeCard(),
                        status.memoryMiB(),
                        status.cores(),
                        status.slots(),
                        status.shares(),
                        nodes.strandedMiB(stored),
                        usage.ofGpu(status.nodeName(), status.uuid()).orElse(null)));
    }

    @Override
    public List<Object> cells(ApiObject printed) {
        var gpu = (Gpu) printed;
        GpuStatus status = gpu.status();
        GpuUsage used = status.usage();
        return Arrays.asList(
                gpu.metadata().name(),
                status.nodeName(),
                status.index(),
                status.model(),
                Resource.fraction(
                        used == null ? null : used.memoryMiB(),
                        status.memoryMiB().allocated() + "/"
                                + status.memoryMiB().total(),
                        "Mi"),
                Resource.fraction(status.cores().allocated(), status.cores().total(), "%"),
                status.shares(),
                health(status),
                Objects.requireNonNullElse(status.reason(), ""),
                Resource.age(gpu.metadata().creationTimestamp(), clock.instant()));
    }

    private static String health(GpuStatus status) {
        if (!status.healthy()) {
            return "Unhealthy";
        }
        return status.cordoned() ? "Cordoned" : "Healthy";
    }
}
