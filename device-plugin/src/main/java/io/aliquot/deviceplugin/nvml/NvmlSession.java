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

    private final Opener opener;
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
     * @param onHealthChange called from another thread after an XID error that changes a GPU's health
     * @param nanoTime a clock such as {@link System#nanoTime}
     */
    public NvmlSession(Opener opener, AgentMetrics metrics, Runnable onHealthChange, LongSupplier nanoTime) {
        this.opener = opener;
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
            present = new OpenNvml(nvml, new XidWatcher(nvml, metrics, onHealthChange));
            open = present;
        }
        return present;
    }

    private record OpenNvml(Nvml nvml, XidWatcher xids) {
        List<PhysicalGpu> gpus() throws NvmlException {
            return nvml.gpus().stream()
                    .map(gpu -> xids.failure(gpu.uuid())
                            .map(reason -> gpu.withHealth(new GpuHealth.Unhealthy(reason)))
                            .orElse(gpu))
                    .toList();
        }

        void close() {
            xids.close(); // first: it calls NVML
            nvml.close();
        }
    }
}
