package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.ledger.GpuReport;
import io.aliquot.scheduler.ledger.Ledger;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.MultiGauge;
import io.micrometer.core.instrument.Tags;
import java.util.List;
import java.util.function.ToDoubleFunction;

/** Each GPU's capacity and what is taken of it. */
final class LedgerMetrics {
    private final Ledger ledger;
    private final MultiGauge memory;
    private final MultiGauge memoryTaken;
    private final MultiGauge coresTaken;
    private final MultiGauge slots;
    private final MultiGauge slotsTaken;

    LedgerMetrics(Ledger ledger, MeterRegistry metrics) {
        this.ledger = ledger;
        memory = gauge(metrics, "aliquot.gpu.memory.mebibytes", "Device memory");
        memoryTaken = gauge(metrics, "aliquot.gpu.memory.allocated.mebibytes", "Device memory allocated to pods");
        coresTaken = gauge(metrics, "aliquot.gpu.cores.allocated.percent", "Compute allocated to pods");
        slots = gauge(metrics, "aliquot.gpu.slots", "vGPUs at most");
        slotsTaken = gauge(metrics, "aliquot.gpu.slots.allocated", "vGPUs allocated to pods");
    }

    private static MultiGauge gauge(MeterRegistry metrics, String name, String description) {
        return MultiGauge.builder(name).description(description).register(metrics);
    }

    void refresh() {
        List<GpuReport> reports = ledger.report();
        set(memory, reports, report -> report.gpu().memoryMiB());
        set(memoryTaken, reports, report -> report.taken().memoryMiB());
        set(coresTaken, reports, report -> report.taken().cores());
        set(slots, reports, GpuReport::slots);
        set(slotsTaken, reports, report -> report.taken().slots());
    }

    private static void set(MultiGauge gauge, List<GpuReport> reports, ToDoubleFunction<GpuReport> value) {
        gauge.register(
                reports.stream()
                        .map(report -> MultiGauge.Row.of(
                                Tags.of(
                                        "node",
                                        report.node(),
                                        "gpu",
                                        report.gpu().uuid()),
                                value.applyAsDouble(report)))
                        .<MultiGauge.Row<?>>map(row -> row)
                        .toList(),
                true);
    }
}
