package io.aliquot.deviceplugin.health;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.nodes.GpuHealth.Recovery;
import io.aliquot.api.nodes.GpuHealth.Unhealthy;
import io.aliquot.deviceplugin.nvml.GpuCondition;
import io.aliquot.deviceplugin.nvml.GpuCondition.Fault;
import io.aliquot.deviceplugin.nvml.NvmlReading;
import java.time.Instant;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * The health of a GPU from its former health and what was observed since.
 *
 * <p>A GPU is unhealthy for one of two reasons. NVML reports a fault: the GPU is healthy as soon as NVML reports none. Or
 * the driver has reported an XID error: events do not report a repair, so the GPU stays unhealthy until a probe succeeds
 * that tells the error is over. If the driver tells which recovery a GPU needs, a probe without such a demand suffices.
 * Else an error that needs a reset or a reboot lasts until there was one, or until an administrator clears it.
 *
 * <p>A successful probe is a reading of NVML, made some time after the last XID error, that lists the GPU by its UUID,
 * could read its memory and found no fault.
 */
final class HealthRules {
    private HealthRules() {}

    /**
     * What was observed of one GPU.
     *
     * @param reading the latest one
     * @param condition of the GPU in the reading; empty if it is not listed there
     * @param xids XID errors since the former health was computed
     * @param settled whether the reading began long enough after the last XID error
     * @param since what happened since the former health was computed
     */
    record Observation(
            NvmlReading reading,
            Optional<GpuCondition> condition,
            List<XidTable.Entry> xids,
            boolean settled,
            Since since,
            Instant now) {
        Observation {
            xids = List.copyOf(xids);
        }
    }

    /**
     * What may have ended an XID error.
     *
     * @param rebooted whether the node has rebooted
     * @param driverLoaded whether the driver was reloaded; true after a reboot
     * @param cleared whether an administrator says that the errors are over
     */
    record Since(boolean rebooted, boolean driverLoaded, boolean cleared) {
        static final Since NOTHING = new Since(false, false, false);

        private boolean ends(Recovery recovery) {
            return cleared
                    || rebooted
                    || switch (recovery) {
                        case PROBE, RESET -> driverLoaded;
                        case REBOOT -> false;
                    };
        }
    }

    /** The GPU's health now. */
    static GpuHealth next(GpuHealth former, Observation observed) {
        Optional<Unhealthy> before = former.unhealthy();
        Instant since = before.map(Unhealthy::since).orElse(observed.now);
        Optional<Unhealthy> fromXid =
                before.filter(unhealthy -> unhealthy.xid().isPresent()).filter(unhealthy -> lasts(unhealthy, observed));
        Optional<Unhealthy> worst = observed.xids.stream()
                .filter(xid -> xid.severity().makesUnhealthy())
                .max(Comparator.comparing(XidTable.Entry::severity))
                .map(xid -> ofXid(xid, since));
        Optional<Unhealthy> held = fromXid.filter(unhealthy -> worst.isEmpty()
                        || unhealthy.recovery().compareTo(worst.get().recovery()) >= 0)
                .or(() -> worst);
        return held.<GpuHealth>map(unhealthy -> unhealthy).orElseGet(() -> switch (observed.reading) {
            case NvmlReading.Gpus gpus ->
                observed.condition
                        .map(condition -> ofFaults(condition.faults(), since))
                        .orElse(new Unhealthy("NVML does not list it any more", since));
            case NvmlReading.Unavailable(String reason) -> new Unhealthy(printable(reason), since);
            case NvmlReading.NotAsked(String reason) ->
                before.<GpuHealth>map(HealthRules::untilProbed).orElse(former);
        });
    }

    private static boolean lasts(Unhealthy unhealthy, Observation observed) {
        boolean probedWell = observed.settled
                && observed.condition
                        .filter(condition -> condition.faults().isEmpty()
                                && (condition.reportsRecovery() || unhealthy.recovery() == Recovery.PROBE))
                        .isPresent();
        return !probedWell && !observed.since.ends(unhealthy.recovery());
    }

    /** The error is over, and no probe has said yet that the GPU is healthy. */
    private static Unhealthy untilProbed(Unhealthy unhealthy) {
        return new Unhealthy(unhealthy.reason(), unhealthy.since());
    }

    private static Unhealthy ofXid(XidTable.Entry xid, Instant since) {
        Recovery recovery = switch (xid.severity()) {
            case APPLICATION, INFORMATION, GPU -> Recovery.PROBE;
            case LINK, RESET -> Recovery.RESET;
            case REBOOT -> Recovery.REBOOT;
        };
        return new Unhealthy(xid.print(), since, OptionalInt.of(xid.number()), recovery);
    }

    private static GpuHealth ofFaults(List<Fault> faults, Instant since) {
        return faults.stream()
                .max(Comparator.comparing(Fault::recovery))
                .<GpuHealth>map(
                        fault -> new Unhealthy(printable(fault.reason()), since, OptionalInt.empty(), fault.recovery()))
                .orElse(Gpu.HEALTHY);
    }

    private static String printable(String reason) {
        String printable = reason.replaceAll("\\p{Cntrl}", " ");
        return printable.length() <= Unhealthy.LONGEST_REASON
                ? printable
                : printable.substring(0, Unhealthy.LONGEST_REASON - 1) + "…";
    }
}
