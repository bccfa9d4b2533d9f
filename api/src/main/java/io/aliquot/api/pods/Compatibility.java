package io.aliquot.api.pods;

import io.aliquot.api.format.Keywords;
import java.util.List;
import java.util.Locale;

/** The product whose meaning a resource has that other products use too. */
public enum Compatibility {
    /** Aliquot's. */
    NONE,
    /** HAMi's: all cores of a GPU are the whole card, and more than 100 cores count as 100. */
    HAMI;

    /**
     * Reads {@code none} or {@code hami}.
     *
     * @param where the annotation or setting that the value comes from, for the message
     */
    public static Compatibility parse(String where, String text) {
        return Keywords.parse(where, text, List.of(values()), Compatibility::print);
    }

    /**
     * The core policy of pods with an amount of cores for which neither pod, namespace nor chart names one. HAMi limits a
     * container's compute only while another container of the same or a higher priority uses the GPU
     * (github.com/Project-HAMi/HAMi, cmd/vGPUmonitor/feedback.go, Observe, with {@code gpuCorePolicy: default}), and never
     * one without an amount (HAMi-core, multiprocess_utilization_watcher.c, rate_limiter).
     */
    public CorePolicy corePolicy() {
        return this == HAMI ? CorePolicy.ELASTIC : CorePolicy.FIXED;
    }

    public String print() {
        return name().toLowerCase(Locale.ROOT);
    }
}
