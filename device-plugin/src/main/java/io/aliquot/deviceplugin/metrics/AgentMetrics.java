package io.aliquot.deviceplugin.metrics;

import io.prometheus.metrics.core.metrics.Counter;
import io.prometheus.metrics.core.metrics.Gauge;
import io.prometheus.metrics.core.metrics.Histogram;
import io.prometheus.metrics.expositionformats.PrometheusTextFormatWriter;
import io.prometheus.metrics.model.registry.MultiCollector;
import io.prometheus.metrics.model.registry.PrometheusRegistry;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.Locale;
import java.util.Set;

/** The metrics of this process. Thread-safe. */
public final class AgentMetrics {
    private static final double NANOS_PER_SECOND = 1e9;

    private final PrometheusRegistry registry = new PrometheusRegistry();

    private final Histogram allocateDuration = Histogram.builder()
            .name("aliquot_agent_allocate_duration_seconds")
            .help("Time to answer the kubelet's Allocate.")
            .classicUpperBounds(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1)
            .classicOnly()
            .withoutExemplars()
            .register(registry);
    private final Counter allocateFailures =
            counter("aliquot_agent_allocate_failures_total", "Allocate calls answered with an error.");
    private final Counter registrations = counter(
            "aliquot_agent_registrations_total",
            "Registrations with the kubelet; more than one means that it restarted or lost the plugin.");
    private final Counter nodePatches = counter(
            "aliquot_agent_node_patches_total",
            "PATCHes of the Node, by target: inventory (an annotation), extended_resources"
                    + " or condition (its status), gpu_labels (those of GPU feature discovery).",
            "target");
    private final Gauge gpus = gauge("aliquot_agent_gpus", "GPUs of the node by health.", "healthy");
    private final Gauge slots = gauge("aliquot_agent_slots", "Slots advertised to the kubelet by health.", "healthy");
    private final Gauge nodeSettingsInvalid = gauge(
            "aliquot_agent_node_settings_invalid",
            "1 while a label or annotation of the Node has an invalid value, else 0; the log names it.");
    private final Gauge nodeConflict = gauge(
            "aliquot_agent_node_conflict",
            "1 while the node takes no pods because of another device plugin or a driver upgrade, else 0;"
                    + " /readyz says why.");
    private final Gauge gpusHeldByOthers = gauge(
            "aliquot_agent_gpus_held_by_others",
            "GPUs that pods hold through another device plugin, and that therefore get no vGPUs.");
    private final Counter xidErrors = counter(
            "aliquot_agent_xid_errors_total",
            "XID errors reported by the driver, by GPU UUID and XID number.",
            "gpu",
            "xid");
    private final Gauge nvmlAvailable = gauge(
            "aliquot_agent_nvml_available", "1 while NVIDIA's management library answers, else 0; /readyz says why.");
    private final Gauge nvmlHanging = gauge(
            "aliquot_agent_nvml_hanging",
            "1 while a call of NVIDIA's management library has not returned for 30 s, else 0.");
    private final Gauge arbiterRunning = gauge(
            "aliquot_agent_arbiter_running",
            "1 while the program runs that lends idle GPU time, else 0: containers keep their own cores.");
    private final Counter arbiterStarts = counter(
            "aliquot_agent_arbiter_starts_total",
            "Starts of the program that lends idle GPU time; more than one means that it ended.");
    private final Gauge gpuHealthy = gauge(
            "aliquot_gpu_healthy",
            "1 if the GPU may get new vGPUs, 0 if not; the reason is empty for a healthy GPU.",
            "gpu",
            "node",
            "model",
            "reason");
    private final Gauge gpuSlowdown = gauge(
            "aliquot_gpu_slowdown",
            "1 while the GPU's clocks are slowed down, by cause: thermal or power_brake; not there else.",
            "gpu",
            "node",
            "model",
            "cause");
    private final Gauge unhookedContainers = gauge(
            "aliquot_agent_containers_with_unhooked_functions",
            "Containers, the latest of each slot, that got a CUDA function from the driver that the shim must"
                    + " hook and does not know; its calls bypass the limits.");
    private final Gauge abusedFiles = gauge(
            "aliquot_agent_abused_files",
            "Files of Aliquot that a container has enlarged or closed to the agent in the last two minutes.");

    private Counter counter(String name, String help, String... labels) {
        return Counter.builder()
                .name(name)
                .help(help)
                .labelNames(labels)
                .withoutExemplars()
                .register(registry);
    }

    private Gauge gauge(String name, String help, String... labels) {
        return Gauge.builder()
                .name(name)
                .help(help)
                .labelNames(labels)
                .withoutExemplars()
                .register(registry);
    }

    /** Adds metrics that another object collects at each scrape. */
    public void add(MultiCollector collector) {
        registry.register(collector);
    }

    /** What a PATCH of the Node writes. */
    public enum PatchTarget {
        INVENTORY,
        EXTENDED_RESOURCES,
        CONDITION,
        GPU_LABELS;

        private String label() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    public void allocateAnswered(Duration duration) {
        allocateDuration.observe(duration.toNanos() / NANOS_PER_SECOND);
    }

    public void allocateFailed() {
        allocateFailures.inc();
    }

    public void registered() {
        registrations.inc();
    }

    public void nodePatched(PatchTarget target) {
        nodePatches.labelValues(target.label()).inc();
    }

    public void slots(int healthy, int unhealthy) {
        slots.labelValues("true").set(healthy);
        slots.labelValues("false").set(unhealthy);
    }

    public void nodeSettingsInvalid(boolean invalid) {
        nodeSettingsInvalid.set(invalid ? 1 : 0);
    }

    /**
     * What other device plugins do on the node.
     *
     * @param conflict whether they keep the node from taking pods
     * @param held the number of GPUs that their pods hold
     */
    public void otherDevicePlugins(boolean conflict, int held) {
        nodeConflict.set(conflict ? 1 : 0);
        gpusHeldByOthers.set(held);
    }

    /**
     * Counts an XID error.
     *
     * @param uuid the GPU's; empty if unknown
     */
    public void xidReported(String uuid, long xid) {
        xidErrors.labelValues(uuid, Long.toString(xid)).inc();
    }

    /** The arbiter has started, or has ended. */
    public void arbiterRuns(boolean runs) {
        arbiterRunning.set(runs ? 1 : 0);
        if (runs) {
            arbiterStarts.inc();
        }
    }

    /**
     * Whether NVML can be used.
     *
     * @param available whether it answers
     * @param hanging whether one of its calls does not return
     */
    public void nvml(boolean available, boolean hanging) {
        nvmlAvailable.set(available ? 1 : 0);
        nvmlHanging.set(hanging ? 1 : 0);
    }

    /**
     * One GPU of the node.
     *
     * @param reason why it is unhealthy; empty if it is healthy
     * @param slowdowns why its clocks are slowed down
     */
    public record GpuState(String uuid, String model, String reason, Set<String> slowdowns) {
        public GpuState {
            slowdowns = Set.copyOf(slowdowns);
        }
    }

    /** The GPUs of the node; those of the last call that are not among them are forgotten. */
    public synchronized void gpus(String node, Collection<GpuState> states) {
        gpuHealthy.clear();
        gpuSlowdown.clear();
        for (GpuState gpu : states) {
            gpuHealthy.labelValues(gpu.uuid, node, gpu.model, gpu.reason).set(gpu.reason.isEmpty() ? 1 : 0);
            gpu.slowdowns.forEach(cause ->
                    gpuSlowdown.labelValues(gpu.uuid, node, gpu.model, cause).set(1));
        }
        int unhealthy =
                (int) states.stream().filter(gpu -> !gpu.reason.isEmpty()).count();
        gpus.labelValues("true").set(states.size() - unhealthy);
        gpus.labelValues("false").set(unhealthy);
    }

    public void containersWithUnhookedFunctions(int containers) {
        unhookedContainers.set(containers);
    }

    public void abusedFiles(int files) {
        abusedFiles.set(files);
    }

    /** All metrics in Prometheus's text format. */
    public synchronized String print() {
        var text = new ByteArrayOutputStream();
        try {
            PrometheusTextFormatWriter.create().write(text, registry.scrape());
        } catch (IOException e) {
            throw new UncheckedIOException("writing to memory", e);
        }
        return text.toString(StandardCharsets.UTF_8);
    }
}
