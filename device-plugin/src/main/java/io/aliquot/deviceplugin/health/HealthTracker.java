package io.aliquot.deviceplugin.health;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.GpuUuids;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.deviceplugin.health.HealthRules.Observation;
import io.aliquot.deviceplugin.health.HealthRules.Since;
import io.aliquot.deviceplugin.nvml.GpuCondition;
import io.aliquot.deviceplugin.nvml.Nvml;
import io.aliquot.deviceplugin.nvml.NvmlReading;
import io.aliquot.deviceplugin.problem.Problem;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BiConsumer;
import java.util.function.LongSupplier;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * Computes the health of the node's GPUs from the last inventory, the latest reading of NVML and the XID errors since the
 * last call, by the {@link HealthRules}. What outlasts this process is in the inventory.
 *
 * <p>Not thread-safe.
 */
public final class HealthTracker {
    private static final Logger LOG = System.getLogger(HealthTracker.class.getName());

    private final XidTable table;
    private final String bootId;
    private final Duration settleTime;
    private final HealthHistory history;
    private final BiConsumer<String, XidTable.Entry> onApplicationXid;
    private final InstantSource clock;
    private final LongSupplier nanoTime;
    private final Problem invalidRequest = new Problem(LOG, Level.ERROR);

    /** When the last XID error of each GPU was seen, by {@code nanoTime}. */
    private final Map<String, Long> lastXids = new HashMap<>();

    private int driverLoads;

    /** The Node's annotation for clearing errors; null before the first call. */
    private @Nullable String clearRequest;

    /**
     * Creates a tracker.
     *
     * @param bootId the host's; empty if unknown
     * @param settleTime how long after an XID error a reading of NVML begins to tell whether the error is over: the driver
     *     takes note of it within moments
     * @param history receives each change
     * @param onApplicationXid receives the GPU's UUID and the error of each program
     * @param nanoTime a clock such as {@link System#nanoTime}, that of the readings
     */
    public HealthTracker(
            XidTable table,
            String bootId,
            Duration settleTime,
            HealthHistory history,
            BiConsumer<String, XidTable.Entry> onApplicationXid,
            InstantSource clock,
            LongSupplier nanoTime) {
        this.table = table;
        this.bootId = bootId;
        this.settleTime = settleTime;
        this.history = history;
        this.onApplicationXid = onApplicationXid;
        this.clock = clock;
        this.nanoTime = nanoTime;
    }

    /**
     * The health of each GPU that NVML lists or the last inventory contains, by UUID.
     *
     * @param readAt when the reading began
     * @param xids the XID errors since the last call
     * @param previous the last inventory
     * @param annotations the Node's
     */
    public Map<String, GpuHealth> assess(
            NvmlReading reading,
            long readAt,
            List<Nvml.Xid> xids,
            Optional<Inventory> previous,
            Map<String, String> annotations) {
        Map<String, List<XidTable.Entry>> byGpu = record(xids);
        boolean rebooted = previous.filter(inventory ->
                        !inventory.bootId().isEmpty() && !inventory.bootId().equals(bootId))
                .isPresent();
        boolean driverLoaded = driverLoaded(reading, previous);
        Predicate<String> cleared = newlyCleared(annotations.getOrDefault(Annotations.CLEAR_GPU_ERRORS, ""));

        Map<String, GpuHealth> former = new HashMap<>();
        previous.ifPresent(inventory -> inventory.gpus().forEach(gpu -> former.put(gpu.uuid(), gpu.health())));
        Map<String, GpuCondition> listed = listed(reading);
        Set<String> uuids = new LinkedHashSet<>(former.keySet());
        uuids.addAll(listed.keySet());
        lastXids.keySet().retainAll(uuids);
        Map<String, GpuHealth> health = new HashMap<>();
        for (String uuid : uuids) {
            Long lastXid = lastXids.get(uuid);
            health.put(
                    uuid,
                    HealthRules.next(
                            former.getOrDefault(uuid, Gpu.HEALTHY),
                            new Observation(
                                    reading,
                                    Optional.ofNullable(listed.get(uuid)),
                                    byGpu.getOrDefault(uuid, List.of()),
                                    lastXid == null || readAt - lastXid >= settleTime.toNanos(),
                                    new Since(rebooted, rebooted || driverLoaded, cleared.test(uuid)),
                                    clock.instant())));
        }
        history.add(health, clock.instant());
        return health;
    }

    private Map<String, List<XidTable.Entry>> record(List<Nvml.Xid> xids) {
        Map<String, List<XidTable.Entry>> byGpu = new HashMap<>();
        for (Nvml.Xid xid : xids) {
            XidTable.Entry entry = table.of(Math.clamp(xid.number(), 1, XidTable.LARGEST));
            if (xid.uuid().isEmpty()) {
                LOG.log(
                        Level.WARNING,
                        "{0}: the GPU did not return its UUID; each GPU is probed instead",
                        entry.print());
                continue;
            }
            boolean unhealthy = entry.severity().makesUnhealthy();
            LOG.log(
                    unhealthy ? Level.ERROR : Level.INFO,
                    "{0} on GPU {1}: {2}",
                    entry.print(),
                    xid.uuid(),
                    unhealthy ? "the GPU is unhealthy" : "what NVML reports about the GPU decides on its health");
            if (entry.severity() == XidTable.Severity.APPLICATION) {
                onApplicationXid.accept(xid.uuid(), entry);
            }
            if (unhealthy) {
                lastXids.put(xid.uuid(), nanoTime.getAsLong());
                byGpu.computeIfAbsent(xid.uuid(), uuid -> new ArrayList<>()).add(entry);
            }
        }
        return byGpu;
    }

    private boolean driverLoaded(NvmlReading reading, Optional<Inventory> previous) {
        if (!(reading instanceof NvmlReading.Gpus gpus)) {
            return false;
        }
        boolean seen = gpus.driverLoads() > driverLoads;
        driverLoads = gpus.driverLoads();
        return seen
                || previous.filter(inventory -> !inventory.driverVersion().isEmpty()
                                && !inventory.driverVersion().equals(gpus.driver()))
                        .isPresent();
    }

    /**
     * Which GPUs' errors an administrator has cleared since the last call. The annotation acts when it is set or changed:
     * this process cannot remove it, and an error that comes later is another one. For the same reason an annotation that
     * was there when this process started does not act.
     */
    private Predicate<String> newlyCleared(String request) {
        boolean acts = clearRequest != null && !clearRequest.equals(request) && !request.isEmpty();
        clearRequest = request;
        if (request.isEmpty()) {
            invalidRequest.resolve();
        }
        if (!acts) {
            return uuid -> false;
        }
        if (request.equals(Annotations.ALL_GPUS)) {
            return uuid -> true;
        }
        try {
            Set<String> uuids = GpuUuids.parseList(Annotations.CLEAR_GPU_ERRORS, request);
            invalidRequest.resolve();
            return uuids::contains;
        } catch (FormatException e) {
            invalidRequest.report(e.getMessage() + "; " + Annotations.CLEAR_GPU_ERRORS + " is \"all\" or UUIDs of GPUs"
                    + " with commas between them");
            return uuid -> false;
        }
    }

    private static Map<String, GpuCondition> listed(NvmlReading reading) {
        Map<String, GpuCondition> listed = new HashMap<>();
        if (reading instanceof NvmlReading.Gpus gpus) {
            gpus.listing().gpus().forEach(gpu -> listed.put(gpu.uuid(), gpu.condition()));
        }
        return listed;
    }
}
