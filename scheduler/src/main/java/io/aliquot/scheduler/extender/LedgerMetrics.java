package io.aliquot.scheduler.extender;

import io.aliquot.api.MemoryRequest.Mebibytes;
import io.aliquot.api.MemoryRequest.WholeCard;
import io.aliquot.api.Vgpu;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.GpuFreeCapacity;
import io.prometheus.metrics.model.registry.MultiCollector;
import io.prometheus.metrics.model.snapshots.GaugeSnapshot;
import io.prometheus.metrics.model.snapshots.GaugeSnapshot.GaugeDataPointSnapshot;
import io.prometheus.metrics.model.snapshots.Labels;
import io.prometheus.metrics.model.snapshots.MetricSnapshot;
import io.prometheus.metrics.model.snapshots.MetricSnapshots;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/*
 * Read from the ledger when somebody asks, and not kept: gauges that live on would cost hundreds of MB where there are
 * tens of thousands of GPUs. For the same reason a large cluster is told by node and no longer by GPU.
 */
/** Each GPU's and each node's capacity, what is allocated, free and stranded of it, and how much the ledger holds. */
final class LedgerMetrics implements MultiCollector {
    /** With more GPUs than this there are no series of single GPUs. */
    static final int MOST_GPUS = 2000;

    /** What is told of a GPU, or of all GPUs of a node. */
    private enum Measure {
        MEMORY("memory_mebibytes", "Device memory for shares"),
        MEMORY_ALLOCATED("memory_allocated_mebibytes", "Device memory allocated to pods"),
        MEMORY_FREE("memory_free_mebibytes", "Device memory that is not allocated"),
        MEMORY_STRANDED(
                "memory_stranded_mebibytes",
                "Free device memory that no share of a shape that runs or waits in this cluster would fit into"),
        CORES("cores_percent", "Compute for shares"),
        CORES_ALLOCATED("cores_allocated_percent", "Compute allocated to pods"),
        CORES_FREE("cores_free_percent", "Compute that is not allocated"),
        SLOTS("slots", "vGPUs at most"),
        SLOTS_ALLOCATED("slots_allocated", "vGPUs allocated to pods"),
        SLOTS_FREE("slots_free", "vGPUs that are not allocated"),
        OPEN("open", "Takes new shares: healthy and not cordoned; of a node, how many such GPUs it has");

        final String name;
        final String help;

        Measure(String name, String help) {
            this.name = name;
            this.help = help;
        }
    }

    private final Ledger ledger;
    private final PendingPods pending;
    private final PendingCauseCounts causes;

    LedgerMetrics(Ledger ledger, PendingPods pending, PendingCauseCounts causes) {
        this.ledger = ledger;
        this.pending = pending;
        this.causes = causes;
    }

    @Override
    public MetricSnapshots collect() {
        List<NodeView> views = ledger.nodeNames().stream()
                .sorted()
                .flatMap(name -> ledger.view(name).stream())
                .toList();
        ShareSizes shapes = shapes(views);
        int gpus = views.stream().mapToInt(view -> view.gpus().size()).sum();
        var ofGpus = new Series("aliquot_gpu_");
        var ofNodes = new Series("aliquot_node_gpu_");
        for (NodeView view : views) {
            if (view.gpus().isEmpty()) {
                continue;
            }
            Map<Measure, Double> sums = new EnumMap<>(Measure.class);
            for (GpuFreeCapacity room : view.gpus()) {
                Map<Measure, Double> values = measure(room, shapes);
                values.forEach((measure, value) -> sums.merge(measure, value, Double::sum));
                if (gpus <= MOST_GPUS) {
                    ofGpus.add(
                            Labels.of(
                                    "node", view.name(),
                                    "gpu", room.gpu().uuid(),
                                    "model", room.gpu().model()),
                            values);
                }
            }
            ofNodes.add(Labels.of("node", view.name()), sums);
        }
        var all = new ArrayList<MetricSnapshot>();
        ofGpus.build(all);
        ofNodes.build(all);
        all.add(size(views, gpus));
        all.add(holdings(views));
        all.add(waiting());
        return new MetricSnapshots(all);
    }

    private ShareSizes shapes(List<NodeView> views) {
        var shapes = new ShareSizes();
        for (NodeView view : views) {
            for (Holding holding : view.holdings()) {
                holding.shares().forEach(share -> {
                    for (Vgpu vgpu : share.vgpus().list()) {
                        shapes.add(vgpu.exclusive() ? new WholeCard() : new Mebibytes(vgpu.memoryMiB()), vgpu.cores());
                    }
                });
            }
        }
        pending.allWaiting().forEach(waiting -> {
            for (ContainerGpuRequest container : waiting.wish().ask().containers()) {
                shapes.add(container.request().memory(), container.request().cores());
            }
        });
        return shapes;
    }

    private static Map<Measure, Double> measure(GpuFreeCapacity room, ShareSizes shapes) {
        Map<Measure, Double> values = new EnumMap<>(Measure.class);
        long memory = room.capacity().memoryMiB();
        int cores = room.capacity().cores();
        int slots = room.capacity().slots();
        values.put(Measure.MEMORY, (double) memory);
        values.put(Measure.MEMORY_ALLOCATED, (double) room.allocated().memoryMiB());
        values.put(Measure.MEMORY_FREE, (double) (memory - room.allocated().memoryMiB()));
        values.put(Measure.MEMORY_STRANDED, (double) shapes.stranded(room));
        values.put(Measure.CORES, (double) cores);
        values.put(Measure.CORES_ALLOCATED, (double) room.allocated().cores());
        values.put(Measure.CORES_FREE, (double) (cores - room.allocated().cores()));
        values.put(Measure.SLOTS, (double) slots);
        values.put(Measure.SLOTS_ALLOCATED, (double) room.allocated().slots());
        values.put(Measure.SLOTS_FREE, (double) (slots - room.allocated().slots()));
        values.put(
                Measure.OPEN, (double) (room.gpu().healthy() && !room.capacity().cordoned() ? 1 : 0));
        return values;
    }

    private static GaugeSnapshot size(List<NodeView> views, int gpus) {
        return GaugeSnapshot.builder()
                .name("aliquot_ledger_size")
                .help("What the ledger knows of: nodes, nodes that share GPUs, GPUs")
                .dataPoint(point(Labels.of("of", "nodes"), views.size()))
                .dataPoint(point(Labels.of("of", "sharing-nodes"), (double)
                        views.stream().filter(view -> !view.gpus().isEmpty()).count()))
                .dataPoint(point(Labels.of("of", "gpus"), gpus))
                .build();
    }

    private static GaugeSnapshot holdings(List<NodeView> views) {
        Map<Holding.State, Integer> counts = new EnumMap<>(Holding.State.class);
        for (Holding.State state : Holding.State.values()) {
            counts.put(state, 0);
        }
        for (NodeView view : views) {
            for (Holding holding : view.holdings()) {
                if (!holding.perGpu().isEmpty()) {
                    counts.merge(holding.state(), 1, Integer::sum);
                }
            }
        }
        var gauge = GaugeSnapshot.builder()
                .name("aliquot_ledger_holdings")
                .help("Pods that hold a part of a GPU, or for which one is kept, by how sure that is");
        counts.forEach((state, count) ->
                gauge.dataPoint(point(Labels.of("state", state.name().toLowerCase(Locale.ROOT)), count)));
        return gauge.build();
    }

    private GaugeSnapshot waiting() {
        var gauge = GaugeSnapshot.builder()
                .name("aliquot_pods_waiting")
                .help("Pods that fit on no node, by what is missing on the node that comes closest");
        causes.count().forEach((cause, count) -> gauge.dataPoint(point(Labels.of("cause", cause), count)));
        return gauge.build();
    }

    private static GaugeDataPointSnapshot point(Labels labels, double value) {
        return GaugeDataPointSnapshot.builder().labels(labels).value(value).build();
    }

    /** A gauge for each measure. */
    private static final class Series {
        private final Map<Measure, GaugeSnapshot.Builder> gauges = new LinkedHashMap<>();

        Series(String prefix) {
            for (Measure measure : Measure.values()) {
                gauges.put(
                        measure,
                        GaugeSnapshot.builder().name(prefix + measure.name).help(measure.help));
            }
        }

        void add(Labels labels, Map<Measure, Double> values) {
            gauges.forEach((measure, gauge) -> gauge.dataPoint(point(labels, values.getOrDefault(measure, 0.0))));
        }

        void build(List<MetricSnapshot> into) {
            gauges.values().forEach(gauge -> into.add(gauge.build()));
        }
    }
}
