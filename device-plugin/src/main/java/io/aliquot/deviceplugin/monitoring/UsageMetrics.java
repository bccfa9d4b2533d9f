package io.aliquot.deviceplugin.monitoring;

import io.aliquot.api.usage.UsageReport.Problem;
import io.aliquot.deviceplugin.attribution.ContainerName;
import io.aliquot.deviceplugin.guard.RecentFindings;
import io.aliquot.deviceplugin.usage.NodeUsage;
import io.aliquot.deviceplugin.usage.RecentUsage;
import io.prometheus.metrics.model.registry.MultiCollector;
import io.prometheus.metrics.model.snapshots.Labels;
import io.prometheus.metrics.model.snapshots.MetricSnapshots;
import java.util.Set;
import java.util.stream.Collectors;

/** The metrics of the latest sample. A container that has ended, and a figure that NVML does not have, have no series. */
public final class UsageMetrics implements MultiCollector {
    private static final double PERCENT = 100;
    private static final double MILLI = 1000;

    private final String node;
    private final RecentUsage usage;
    private final RecentFindings findings;

    public UsageMetrics(String node, RecentUsage usage, RecentFindings findings) {
        this.node = node;
        this.usage = usage;
        this.findings = findings;
    }

    @Override
    public MetricSnapshots collect() {
        NodeUsage now = usage.latest();
        Set<ContainerName> unlimited = findings.list().stream()
                .filter(finding -> finding.problem() instanceof Problem.LimitsNotSeen)
                .map(finding -> ContainerName.of(finding.container()))
                .collect(Collectors.toSet());
        var used = new MetricPoints();
        var peak = new MetricPoints();
        var gpuTime = new MetricPoints();
        var lent = new MetricPoints();
        var borrowed = new MetricPoints();
        var throttled = new MetricPoints();
        var denied = new MetricPoints();
        var processes = new MetricPoints();
        var shares = new MetricPoints();
        var covered = new MetricPoints();
        for (NodeUsage.OfContainer container : now.containers()) {
            Labels labels = MetricPoints.labels(container.container(), container.uuid(), node);
            container.chargedBytes().ifPresent(bytes -> used.add(labels.add("kind", "charged"), bytes));
            container.unattributedBytes().ifPresent(bytes -> used.add(labels.add("kind", "unattributed"), bytes));
            peak.add(labels, container.peakBytes());
            gpuTime.add(labels, container.gpuSeconds());
            usage.lent(container.container(), container.uuid()).ifPresent(of -> {
                lent.add(labels, of.lentSeconds());
                borrowed.add(labels, of.borrowedSeconds());
            });
            throttled.add(labels, container.throttledSeconds());
            denied.add(labels, container.denied());
            processes.add(labels, container.processes());
            shares.add(labels, 1);
            covered.add(labels, unlimited.contains(container.container()) ? 1 : 0);
        }
        var memory = new MetricPoints();
        var utilization = new MetricPoints();
        var temperature = new MetricPoints();
        var power = new MetricPoints();
        for (NodeUsage.OfGpu gpu : now.gpus()) {
            Labels labels = Labels.of("gpu", gpu.nvml().uuid(), "node", node);
            memory.add(labels.add("scope", "shares"), gpu.sharedBytes());
            memory.add(labels.add("scope", "other"), gpu.otherBytes());
            gpu.nvml().utilizationPercent().ifPresent(percent -> utilization.add(labels, percent / PERCENT));
            gpu.nvml().temperatureCelsius().ifPresent(celsius -> temperature.add(labels, celsius));
            gpu.nvml().powerMilliwatts().ifPresent(milliwatts -> power.add(labels, milliwatts / MILLI));
        }
        return new MetricSnapshots(
                used.gauge(
                        "aliquot_container_memory_used_bytes",
                        "GPU memory of a container: what the shim has charged, and the unattributed rest that NVML shows."),
                peak.gauge(
                        "aliquot_container_memory_peak_bytes",
                        "Largest GPU memory use of a container since it, or the node agent, started."),
                gpuTime.counter(
                        "aliquot_container_gpu_seconds",
                        "GPU time of a container, from NVML's utilization of its processes."),
                lent.counter(
                        "aliquot_container_gpu_lent_seconds",
                        "GPU time of a container's cores that it left unused and elastic containers used."),
                borrowed.counter(
                        "aliquot_container_gpu_borrowed_seconds",
                        "GPU time that an elastic container used beyond its cores."),
                throttled.counter(
                        "aliquot_container_throttled_seconds",
                        "Time for which launches of a container were throttled, over all threads, as its programs say."),
                denied.counter(
                        "aliquot_container_denied_allocations",
                        "How often the limit refused GPU memory to a container, as its programs say."),
                shares.gauge(
                        "aliquot_share_info", "1 for each container that holds vGPUs and GPU that it uses; for joins."),
                covered.gauge(
                        "aliquot_container_limits_covered",
                        "1 while a process of the container does not see the files that limit it, and for two minutes after; else 0."),
                processes.gauge("aliquot_container_processes", "Processes of a container that use the GPU."),
                memory.gauge(
                        "aliquot_gpu_memory_used_bytes",
                        "GPU memory of processes: of containers that hold vGPUs (shares), and of all others (other)."),
                utilization.gauge(
                        "aliquot_gpu_utilization_ratio", "Part of the last sample period in which the GPU was busy."),
                temperature.gauge("aliquot_gpu_temperature_celsius", "Temperature of the GPU."),
                power.gauge("aliquot_gpu_power_watts", "Power that the GPU's board draws."));
    }
}
