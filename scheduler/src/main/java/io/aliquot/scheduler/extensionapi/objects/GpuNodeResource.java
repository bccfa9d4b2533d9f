package io.aliquot.scheduler.extensionapi.objects;

import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.ApiObject;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.Column;
import io.aliquot.scheduler.extensionapi.machinery.Resource;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuNode;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuNodeStatus;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes.Stored;
import java.time.Clock;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Function;
import org.springframework.stereotype.Component;

/** The gpunodes: nodes that share their GPUs, or did while pods still hold some. */
@Component
public final class GpuNodeResource extends NodesResource<GpuNode> {
    private static final List<Column> COLUMNS = List.of(
            Resource.column("Name", "string", 0, "Name of the node"),
            Resource.column("GPUs", "integer", 0, "Number of GPUs"),
            Resource.column("Healthy", "integer", 0, "Number of healthy GPUs"),
            Resource.column("Mode", "string", 0, "What of the GPUs is shared"),
            Resource.column("Memory", "string", 0, "GPU memory allocated and in total, in MiB"),
            Resource.column("Cores", "string", 0, "Compute allocated and in total, in percent of a GPU"),
            Resource.column("Shares", "integer", 0, "Number of shares that pods hold of the GPUs"),
            Resource.column("Stranded", "string", 0, "Free memory that no share of a kind in the cluster fits into"),
            Resource.column("Reason", "string", 0, "Why the node takes no pods"),
            Resource.column("Age", "string", 1, "Time since the node's creation"));

    private static final Map<String, Function<Stored<GpuNode>, String>> FIELDS =
            Map.of("metadata.name", node -> node.node().name());

    private final Clock clock;

    GpuNodeResource(GpuNodes nodes, Clock clock) {
        super("GpuNode", COLUMNS, FIELDS, nodes.nodeStore(), nodes);
        this.clock = clock;
    }

    @Override
    public GpuNode print(Stored<GpuNode> stored) {
        GpuNodeStatus status = stored.object().status();
        return new GpuNode(
                stored.object().metadata(),
                new GpuNodeStatus(
                        status.schedulable(),
                        status.reason(),
                        status.sharingMode(),
                        status.gpuPlacement(),
                        status.gpus(),
                        status.healthyGpus(),
                        status.memoryMiB(),
                        status.cores(),
                        status.slots(),
                        status.shares(),
                        nodes.strandedMiB(stored),
                        status.conditions(),
                        status.reservations()));
    }

    @Override
    public List<Object> cells(ApiObject printed) {
        var node = (GpuNode) printed;
        GpuNodeStatus status = node.status();
        return Arrays.asList(
                node.metadata().name(),
                status.gpus().size(),
                status.healthyGpus(),
                Objects.requireNonNullElse(status.sharingMode(), "-"),
                Resource.fraction(
                        status.memoryMiB().allocated(), status.memoryMiB().total(), "Mi"),
                Resource.fraction(status.cores().allocated(), status.cores().total(), "%"),
                status.shares(),
                status.strandedMemoryMiB() + "Mi",
                Objects.requireNonNullElse(status.reason(), ""),
                Resource.age(node.metadata().creationTimestamp(), clock.instant()));
    }
}
