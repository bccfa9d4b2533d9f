package io.aliquot.deviceplugin.nvml;

import io.aliquot.api.nodes.GpuHealth.Recovery;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;

/**
 * What NVML reports about the state of one GPU.
 *
 * @param accessible whether NVML can read its memory
 * @param faults what keeps the GPU from taking new vGPUs while NVML reports it; empty if the probe succeeded
 * @param reportsRecovery whether the driver tells which recovery a GPU needs; one that needs none has no fault of that kind
 * @param slowdowns why the GPU runs slower than it could
 */
public record GpuCondition(boolean accessible, List<Fault> faults, boolean reportsRecovery, Set<Slowdown> slowdowns) {
    public GpuCondition {
        faults = List.copyOf(faults);
        slowdowns = Set.copyOf(slowdowns);
    }

    /** A GPU without faults. */
    static GpuCondition good() {
        return new GpuCondition(true, List.of(), true, EnumSet.noneOf(Slowdown.class));
    }

    /**
     * One thing that is wrong.
     *
     * @param reason for people: what is wrong and, where known, what to do
     * @param recovery what ends it; the fault is over when NVML no longer reports it, not before
     */
    public record Fault(String reason, Recovery recovery) {
        public Fault {
            if (reason.isBlank()) {
                throw new IllegalArgumentException("expected the reason why a GPU is unhealthy, found none");
            }
        }
    }

    /** A GPU that is slowed down works correctly, so it stays healthy. */
    public enum Slowdown {
        /** It is too hot. */
        THERMAL,
        /** The power supply asks for less. */
        POWER_BRAKE
    }
}
