package io.aliquot.deviceplugin.monitoring;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.usage.NodeAllocation;
import io.aliquot.api.usage.NodeAllocation.Amount;
import io.aliquot.deviceplugin.attribution.ContainerName;
import io.aliquot.deviceplugin.attribution.Limits;
import io.aliquot.deviceplugin.problem.Problem;
import io.prometheus.metrics.model.registry.MultiCollector;
import io.prometheus.metrics.model.snapshots.Labels;
import io.prometheus.metrics.model.snapshots.MetricSnapshot;
import io.prometheus.metrics.model.snapshots.MetricSnapshots;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.LongSupplier;
import java.util.function.ToDoubleFunction;
import org.jspecify.annotations.Nullable;

/**
 * What the scheduler has allocated of this node's GPUs, and the limits of containers, as it said last; none if that is
 * longer than a minute ago. Thread-safe.
 */
public final class AllocationMetrics implements MultiCollector {
    /** The scheduler sends it every 9 s; its figures of an agent are valid for as long. */
    private static final Duration VALID = Duration.ofMinutes(1);

    private static final double PERCENT = 100;
    private static final double MIB = 1 << 20;

    /** What is shown of a GPU. */
    private record Measure(String name, String help, ToDoubleFunction<NodeAllocation.OfGpu> value) {}

    private static final List<Measure> MEASURES = List.of(
            new Measure(
                    "memory_bytes",
                    "Device memory for vGPUs.",
                    gpu -> MIB * gpu.capacity().memoryMiB()),
            new Measure(
                    "memory_allocated_bytes",
                    "Device memory allocated to pods.",
                    gpu -> MIB * gpu.allocated().memoryMiB()),
            new Measure(
                    "memory_free_bytes",
                    "Device memory that is not allocated.",
                    gpu -> MIB * free(gpu, Amount::memoryMiB)),
            new Measure(
                    "cores_ratio",
                    "Compute for vGPUs; 1 is a whole GPU.",
                    gpu -> gpu.capacity().cores() / PERCENT),
            new Measure(
                    "cores_allocated_ratio",
                    "Compute allocated to pods.",
                    gpu -> gpu.allocated().cores() / PERCENT),
            new Measure(
                    "cores_free_ratio", "Compute that is not allocated.", gpu -> free(gpu, Amount::cores) / PERCENT),
            new Measure(
                    "slots", "Largest number of vGPUs.", gpu -> gpu.capacity().slots()),
            new Measure(
                    "slots_allocated",
                    "vGPUs allocated to pods.",
                    gpu -> gpu.allocated().slots()),
            new Measure("slots_free", "vGPUs that are not allocated.", gpu -> free(gpu, Amount::slots)),
            new Measure(
                    "schedulable",
                    "1 for a GPU that is healthy, not cordoned and not held through another device plugin, else 0.",
                    gpu -> gpu.schedulable() ? 1 : 0));

    private record Received(NodeAllocation allocation, Limits limits, long at) {}

    private final String node;
    private final LongSupplier nanoTime;
    private final Problem problem = new Problem(System.getLogger(AllocationMetrics.class.getName()), Level.WARNING);
    private volatile @Nullable Received received;

    /** Shows nothing at first. */
    public AllocationMetrics(String node, LongSupplier nanoTime) {
        this.node = node;
        this.nanoTime = nanoTime;
    }

    private static double free(NodeAllocation.OfGpu gpu, ToDoubleFunction<Amount> part) {
        return part.applyAsDouble(gpu.capacity()) - part.applyAsDouble(gpu.allocated());
    }

    /** Takes what the scheduler sent, a {@link NodeAllocation}; another text changes nothing. */
    public void accept(String text) {
        try {
            NodeAllocation allocation = NodeAllocation.parse(text);
            received = new Received(allocation, new Limits(allocation.limits()), nanoTime.getAsLong());
            problem.resolve();
        } catch (FormatException e) {
            problem.report("no metrics of what is allocated: the scheduler, perhaps of another version, sent "
                    + e.getMessage());
        }
    }

    /** What the scheduler said last, however long ago. */
    public Limits limits() {
        return Optional.ofNullable(received).map(Received::limits).orElse(Limits.NONE);
    }

    @Override
    public MetricSnapshots collect() {
        Received latest = received;
        if (latest == null || nanoTime.getAsLong() - latest.at > VALID.toNanos()) {
            return new MetricSnapshots();
        }
        var all = new ArrayList<MetricSnapshot>();
        for (Measure measure : MEASURES) {
            var points = new MetricPoints();
            latest.allocation.gpus().forEach(gpu -> points.add(labels(gpu), measure.value.applyAsDouble(gpu)));
            all.add(points.gauge("aliquot_gpu_" + measure.name, measure.help));
        }
        var memory = new MetricPoints();
        var compute = new MetricPoints();
        for (NodeAllocation.Limit limit : latest.allocation.limits()) {
            Labels labels = MetricPoints.labels(ContainerName.of(limit.container()), limit.gpu(), node);
            memory.add(labels, limit.memoryMiB() * MIB);
            limit.ownCores().ifPresent(cores -> compute.add(labels, cores / PERCENT));
        }
        var borrowers = new MetricPoints();
        for (NodeAllocation.OfGpu gpu : latest.allocation.gpus()) {
            long count = latest.allocation.limits().stream()
                    .filter(limit -> limit.gpu().equals(gpu.gpu()) && limit.mayUseIdleTime())
                    .count();
            borrowers.add(labels(gpu), count);
        }
        var heldMemory = new MetricPoints();
        var heldCores = new MetricPoints();
        for (NodeAllocation.OfPod pod : latest.allocation.pods()) {
            Labels labels = Labels.of("namespace", pod.namespace(), "pod", pod.pod(), "node", node);
            heldMemory.add(labels, pod.memoryMiB() * MIB);
            heldCores.add(labels, pod.cores() / PERCENT);
        }
        all.add(heldMemory.gauge(
                "aliquot_pod_memory_allocated_bytes", "Device memory of all GPUs that a pod holds until it ends."));
        all.add(heldCores.gauge(
                "aliquot_pod_cores_allocated_ratio", "Compute that a pod holds until it ends; 1 is a whole GPU."));
        all.add(memory.gauge(
                "aliquot_container_memory_limit_bytes", "Device memory that a container may use of a GPU."));
        all.add(compute.gauge(
                "aliquot_container_gpu_share_ratio",
                "Compute of a GPU that a container has whatever others do; 1 is the whole GPU."));
        all.add(borrowers.gauge(
                "aliquot_gpu_borrowers", "Containers on the GPU that may use time which others leave idle."));
        return new MetricSnapshots(all);
    }

    private Labels labels(NodeAllocation.OfGpu gpu) {
        return Labels.of("node", node, "gpu", gpu.gpu(), "model", gpu.model());
    }
}
