package io.aliquot.deviceplugin.metrics;

import io.prometheus.metrics.core.metrics.Counter;
import io.prometheus.metrics.core.metrics.Gauge;
import io.prometheus.metrics.core.metrics.Histogram;
import io.prometheus.metrics.expositionformats.PrometheusTextFormatWriter;
import io.prometheus.metrics.model.registry.PrometheusRegistry;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;

/** What this process counts. Thread-safe. */
public final class AgentMetrics {
    private final PrometheusRegistry registry = new PrometheusRegistry();

    private final Histogram allocate = Histogram.builder()
            .name("aliquot_agent_allocate_seconds")
            .help("Time to answer the kubelet's Allocate.")
            .classicUpperBounds(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1)
            .classicOnly()
            .withoutExemplars()
            .register(registry);
    private final Counter allocationFailures = Counter.builder()
            .name("aliquot_agent_allocate_failures_total")
            .help("Calls of Allocate that were answered with an error.")
            .withoutExemplars()
            .register(registry);
    private final Counter registrations = Counter.builder()
            .name("aliquot_agent_registrations_total")
            .help("Registrations with the kubelet; more than one means that it restarted or lost the plugin.")
            .withoutExemplars()
            .register(registry);
    private final Counter nodeWrites = Counter.builder()
            .name("aliquot_agent_node_writes_total")
            .help("PATCHes of the node: inventory (an annotation) and totals (its status).")
            .labelNames("what")
            .withoutExemplars()
            .register(registry);
    private final Gauge gpus = Gauge.builder()
            .name("aliquot_agent_gpus")
            .help("GPUs of the node by health.")
            .labelNames("healthy")
            .withoutExemplars()
            .register(registry);
    private final Gauge slots = Gauge.builder()
            .name("aliquot_agent_slots")
            .help("Slots offered to the kubelet by health.")
            .labelNames("healthy")
            .withoutExemplars()
            .register(registry);
    private final Gauge nodeErrors = Gauge.builder()
            .name("aliquot_agent_node_setting_errors")
            .help("1 while a label or annotation of the node has a value that we refuse; see the log.")
            .withoutExemplars()
            .register(registry);
    private final Counter xids = Counter.builder()
            .name("aliquot_agent_xid_events_total")
            .help("XID errors that the driver reported.")
            .labelNames("uuid", "xid")
            .withoutExemplars()
            .register(registry);

    private final Gauge holes = Gauge.builder()
            .name("aliquot_agent_containers_with_holes")
            .help(
                    "Containers, the last one of each slot, where the driver gave out addresses that the shim can't place.")
            .withoutExemplars()
            .register(registry);

    public void allocated(long nanos) {
        allocate.observe(nanos / 1e9);
    }

    public void allocationFailed() {
        allocationFailures.inc();
    }

    public void registered() {
        registrations.inc();
    }

    /** Counts a PATCH of the node's {@code inventory} or {@code totals}. */
    public void wroteNode(String what) {
        nodeWrites.labelValues(what).inc();
    }

    public void gpus(int healthy, int unhealthy) {
        gpus.labelValues("true").set(healthy);
        gpus.labelValues("false").set(unhealthy);
    }

    public void slots(int healthy, int unhealthy) {
        slots.labelValues("true").set(healthy);
        slots.labelValues("false").set(unhealthy);
    }

    public void nodeSettingsRefused(boolean refused) {
        nodeErrors.set(refused ? 1 : 0);
    }

    public void xid(String uuid, long xid) {
        xids.labelValues(uuid, Long.toString(xid)).inc();
    }

    public void containersWithHoles(int containers) {
        holes.set(containers);
    }

    /** All of it in Prometheus's text format. */
    public String print() {
        var text = new ByteArrayOutputStream();
        try {
            PrometheusTextFormatWriter.create().write(text, registry.scrape());
        } catch (IOException e) {
            throw new UncheckedIOException("writing to memory", e);
        }
        return text.toString(StandardCharsets.UTF_8);
    }
}
