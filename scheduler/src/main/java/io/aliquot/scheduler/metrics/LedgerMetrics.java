package io.aliquot.scheduler.metrics;

import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.Quota;
import io.aliquot.scheduler.ledger.QuotaResource;
import io.aliquot.scheduler.ledger.QuotaUsage;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.placement.GpuInfo;
import io.prometheus.metrics.model.registry.MultiCollector;
import io.prometheus.metrics.model.snapshots.GaugeSnapshot;
import io.prometheus.metrics.model.snapshots.GaugeSnapshot.GaugeDataPointSnapshot;
import io.prometheus.metrics.model.snapshots.Labels;
import io.prometheus.metrics.model.snapshots.MetricSnapshot;
import io.prometheus.metrics.model.snapshots.MetricSnapshots;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Supplier;
import java.util.function.ToDoubleBiFunction;

/*
 * Why a collector and not gauges: the values are read from the ledger at each scrape, since gauges for tens of
 * thousands of GPUs would cost hundreds of MB. Nothing here grows with the number of GPUs of a node or of containers:
 * those series come from the node's agent, to which AgentUsage sends what the ledger says of it.
 */
/** Capacity, allocated, free and stranded of each node; the size of the ledger; quotas and their use. */
record LedgerMetrics(Ledger ledger, PendingPods pending, Supplier<Map<String, Integer>> pendingByCause)
        implements MultiCollector {
    /** What is measured of a GPU and summed over the GPUs of a node. */
    private record Measure(String name, String help, ToDoubleBiFunction<GpuInfo, ShareSizes> value) {}

    private static final List<Measure> MEASURES = List.of(
            new Measure(
                    "memory_bytes",
                    "Device memory for vGPUs",
                    (gpu, sizes) -> bytes(gpu.capacity().memoryMiB())),
            new Measure(
                    "memory_allocated_bytes",
                    "Device memory allocated to pods",
                    (gpu, sizes) -> bytes(gpu.allocated().memoryMiB())),
            new Measure(
                    "memory_free_bytes",
                    "Device memory that is not allocated",
                    (gpu, sizes) ->
                            bytes(gpu.capacity().memoryMiB() - gpu.allocated().memoryMiB())),
            new Measure(
                    "memory_stranded_bytes",
                    "Free device memory that no vGPU of a shape that runs or is pending in this cluster fits into",
                    (gpu, sizes) -> bytes(sizes.stranded(gpu))),
            new Measure(
                    "cores_ratio",
                    "Compute for vGPUs; 1 is a whole GPU",
                    (gpu, sizes) -> ratio(gpu.capacity().cores())),
            new Measure(
                    "cores_allocated_ratio",
                    "Compute allocated to pods",
                    (gpu, sizes) -> ratio(gpu.allocated().cores())),
            new Measure(
                    "cores_free_ratio",
                    "Compute that is not allocated",
                    (gpu, sizes) ->
                            ratio(gpu.capacity().cores() - gpu.allocated().cores())),
            new Measure(
                    "slots",
                    "Largest number of vGPUs",
                    (gpu, sizes) -> gpu.capacity().slots()),
            new Measure(
                    "slots_allocated",
                    "vGPUs allocated to pods",
                    (gpu, sizes) -> gpu.allocated().slots()),
            new Measure(
                    "slots_free",
                    "vGPUs that are not allocated",
                    (gpu, sizes) -> gpu.capacity().slots() - gpu.allocated().slots()),
            new Measure(
                    "schedulable",
                    "GPUs that are healthy, not cordoned and not held through another device plugin",
                    (gpu, sizes) -> gpu.capacity().schedulable() ? 1 : 0));

    @Override
    public MetricSnapshots collect() {
        List<NodeView> views = ledger.nodeNames().stream()
                .sorted()
                .flatMap(name -> ledger.view(name).stream())
                .toList();
        List<NodeView> sharing =
                views.stream().filter(view -> !view.gpus().isEmpty()).toList();
        ShareSizes sizes = ShareSizes.of(views, pending);
        var all = new ArrayList<MetricSnapshot>();
        MEASURES.forEach(measure -> all.add(ofNodes(measure, sharing, sizes)));
        all.add(size(views.size(), sharing));
        all.add(holdings(views));
        all.add(waiting());
        addQuotas(all);
        return new MetricSnapshots(all);
    }

    private static double bytes(long mebibytes) {
        return mebibytes * (double) (1 << 20);
    }

    private static double ratio(int percent) {
        return percent / 100.0;
    }

    private static GaugeSnapshot ofNodes(Measure measure, List<NodeView> sharing, ShareSizes sizes) {
        var gauge = GaugeSnapshot.builder()
                .name("aliquot_node_gpu_" + measure.name())
                .help(measure.help());
        for (NodeView view : sharing) {
            double sum = view.gpus().stream()
                    .mapToDouble(gpu -> measure.value().applyAsDouble(gpu, sizes))
                    .sum();
            gauge.dataPoint(point(Labels.of("node", view.name()), sum));
        }
        return gauge.build();
    }

    private static GaugeSnapshot size(int nodes, List<NodeView> sharing) {
        int gpus = sharing.stream().mapToInt(view -> view.gpus().size()).sum();
        return GaugeSnapshot.builder()
                .name("aliquot_ledger_size")
                .help("Objects in the ledger: nodes, nodes that share GPUs, GPUs")
                .dataPoint(point(Labels.of("of", "nodes"), nodes))
                .dataPoint(point(Labels.of("of", "sharing-nodes"), sharing.size()))
                .dataPoint(point(Labels.of("of", "gpus"), gpus))
                .build();
    }

    private static GaugeSnapshot holdings(List<NodeView> views) {
        var gauge = GaugeSnapshot.builder()
                .name("aliquot_ledger_holdings")
                .help("Pods that hold a part of a GPU, or for which one is reserved, by state of the claim");
        for (Holding.State state : Holding.State.values()) {
            long count = views.stream()
                    .flatMap(view -> view.holdings().stream())
                    .filter(holding ->
                            holding.state() == state && !holding.perGpu().isEmpty())
                    .count();
            gauge.dataPoint(point(Labels.of("state", state.name().toLowerCase(Locale.ROOT)), (double) count));
        }
        return gauge.build();
    }

    private GaugeSnapshot waiting() {
        var gauge = GaugeSnapshot.builder()
                .name("aliquot_pending_pods")
                .help("Pending pods that fit on no node, by what is missing on the node that comes closest");
        pendingByCause.get().forEach((cause, count) -> gauge.dataPoint(point(Labels.of("cause", cause), count)));
        return gauge.build();
    }

    private void addQuotas(List<MetricSnapshot> into) {
        List<QuotaUsage> quotas = ledger.quotas();
        for (QuotaResource resource : QuotaResource.values()) {
            String name = "aliquot_quota_" + unit(resource);
            var hard = GaugeSnapshot.builder()
                    .name(name)
                    .help("What a ResourceQuota allows the pods of its namespace to hold of GPUs");
            var used = GaugeSnapshot.builder().name(name + "_used").help("What pods hold of it");
            for (QuotaUsage usage : quotas) {
                Quota quota = usage.quota();
                Long most = quota.hard().get(resource);
                if (most != null) {
                    Labels labels = Labels.of("namespace", quota.namespace(), "resourcequota", quota.name());
                    hard.dataPoint(point(labels, inUnit(resource, most)));
                    used.dataPoint(point(labels, inUnit(resource, resource.of(usage.used()))));
                }
            }
            into.add(hard.build());
            into.add(used.build());
        }
    }

    private static String unit(QuotaResource resource) {
        return switch (resource) {
            case MEMORY -> "memory_bytes";
            case CORES -> "cores_ratio";
            case VGPUS -> "vgpus";
        };
    }

    private static double inUnit(QuotaResource resource, long amount) {
        return switch (resource) {
            case MEMORY -> bytes(amount);
            case CORES -> amount / 100.0;
            case VGPUS -> amount;
        };
    }

    private static GaugeDataPointSnapshot point(Labels labels, double value) {
        return GaugeDataPointSnapshot.builder().labels(labels).value(value).build();
    }
}
