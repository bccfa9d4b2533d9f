package io.aliquot.deviceplugin.monitoring;

import io.aliquot.deviceplugin.attribution.ContainerName;
import io.prometheus.metrics.model.snapshots.CounterSnapshot;
import io.prometheus.metrics.model.snapshots.CounterSnapshot.CounterDataPointSnapshot;
import io.prometheus.metrics.model.snapshots.GaugeSnapshot;
import io.prometheus.metrics.model.snapshots.GaugeSnapshot.GaugeDataPointSnapshot;
import io.prometheus.metrics.model.snapshots.Labels;
import java.util.ArrayList;
import java.util.List;

/** The points of one metric. */
final class MetricPoints {
    private record Point(Labels labels, double value) {}

    private final List<Point> points = new ArrayList<>();

    /** The labels of a metric about a container and a GPU. */
    static Labels labels(ContainerName of, String gpu, String node) {
        return Labels.of(
                "namespace", of.namespace(), "pod", of.pod(), "container", of.container(), "gpu", gpu, "node", node);
    }

    void add(Labels labels, Number value) {
        points.add(new Point(labels, value.doubleValue()));
    }

    GaugeSnapshot gauge(String name, String help) {
        var gauge = GaugeSnapshot.builder().name(name).help(help);
        points.forEach(point -> gauge.dataPoint(GaugeDataPointSnapshot.builder()
                .labels(point.labels)
                .value(point.value)
                .build()));
        return gauge.build();
    }

    CounterSnapshot counter(String name, String help) {
        var counter = CounterSnapshot.builder().name(name).help(help);
        points.forEach(point -> counter.dataPoint(CounterDataPointSnapshot.builder()
                .labels(point.labels)
                .value(point.value)
                .build()));
        return counter.build();
    }
}
