package io.aliquot.deviceplugin.nvml;

import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.problem.Backoff;
import io.aliquot.deviceplugin.problem.Problem;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.List;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/**
 * The lifecycle of NVML: opens the library at the first reading, closes it after a failure, and opens it again with
 * exponential backoff. While it is open, an {@link XidWatcher} listens for XID errors.
 *
 * <p>Not thread-safe.
 */
public final class NvmlSession implements AutoCloseable {
    private static final Logger LOG = System.getLogger(NvmlSession.class.getName());
    private static final Duration FIRST_PAUSE = Duration.ofSeconds(1);
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(60);

    /** Opens NVML. */
    public interface Opener {
        Nvml open() throws NvmlException;
    }

    /** Uses NVML too while it is open. */
    public interface Companion {
        /** Starts after NVML was opened; returns what is to run before NVML is closed, and ends all use of it. */
        Runnable start(Nvml nvml);
    }

    private final Opener opener;
    private final Companion companion;
    private final AgentMetrics metrics;
    private final Runnable onHealthChange;
    private final LongSupplier nanoTime;
    private final Backoff backoff;
    private final Problem unavailable = new Problem(LOG, Level.ERROR);
    private long lastAnswerAt;
    private @Nullable OpenNvml open;

    /**
     * Opens nothing yet.
     *
     * @param companion also uses NVML while it is open
     * @param onHealthChange called from another thread after an XID error that changes a GPU's health
     * @param nanoTime a clock such as {@link System#nanoTime}
     */
    public NvmlSession(
            Opener opener, Companion companion, AgentMetrics metrics, Runnable onHealthChange, LongSupplier nanoTime) {
        this.opener = opener;
        this.companion = companion;
        this.metrics = metrics;
        this.onHealthChange = onHealthChange;
        this.nanoTime = nanoTime;
        backoff = new Backoff(nanoTime, FIRST_PAUSE, LONGEST_PAUSE);
        lastAnswerAt = nanoTime.getAsLong();
    }

    /** Reads all GPUs and their health. */
    public NvmlReading read() {
        if (open == null && !backoff.isOver()) {
            return new NvmlReading.Unavailable(unavailable.message().orElse("NVML is not open yet"));
        }
        try {
            List<PhysicalGpu> gpus = opened().gpus();
            backoff.reset();
            lastAnswerAt = nanoTime.getAsLong();
            if (unavailable.resolve()) {
                LOG.log(Level.INFO, "NVML answers again");
            }
            return new NvmlReading.Gpus(gpus);
        } catch (NvmlException e) {
            close();
            return new NvmlReading.Unavailable(unavailable.report(String.valueOf(e.getMessage())));
        }
    }

    /** Time since NVML answered last, or since this object was made; zero while NVML is open. */
    public Duration unavailableFor() {
        return open != null ? Duration.ZERO : Duration.ofNanos(nanoTime.getAsLong() - lastAnswerAt);
    }

    @Override
    public void close() {
        if (open != null) {
            open.close();
            open = null;
        }
    }

    private OpenNvml opened() throws NvmlException {
        OpenNvml present = open;
        if (present == null) {
            backoff.start();
            Nvml nvml = opener.open();
            present = new OpenNvml(nvml, new XidWatcher(nvml, metrics, onHealthChange), companion.start(nvml));
            open = present;
        }
        return present;
    }

    private record OpenNvml(Nvml nvml, XidWatcher xids, Runnable closeCompanion) {
        List<PhysicalGpu> gpus() throws NvmlException {
            return nvml.gpus().stream()
                    .map(gpu -> xids.failure(gpu.uuid())
                            .map(reason -> gpu.withHealth(new GpuHealth.Unhealthy(reason)))
                            .orElse(gpu))
                    .toList();
        }

        void close() {
            closeCompanion.run(); // first, like the watcher: it calls NVML
            xids.close();
            nvml.close();
        }
    }
}
