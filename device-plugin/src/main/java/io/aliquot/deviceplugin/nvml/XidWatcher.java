package io.aliquot.deviceplugin.nvml;

import io.aliquot.deviceplugin.metrics.AgentMetrics;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Listens for XID errors. A GPU with one that is not its application's own fault is out of use for as long as this
 * process lives: nothing tells that it has been repaired, and who resets it has to drain it anyway.
 */
public final class XidWatcher implements AutoCloseable {
    private static final Logger LOG = System.getLogger(XidWatcher.class.getName());

    /** Errors of programs, after which the GPU is as good as before (docs.nvidia.com/deploy/xid-errors). */
    private static final Set<Long> OF_APPLICATIONS = Set.of(
            13L, // graphics engine exception
            31L, // memory page fault
            43L, // stopped processing
            45L, // preemptive cleanup, after an earlier error
            68L, // video processor exception
            109L); // context switch timeout

    private static final Duration WAIT = Duration.ofSeconds(1);
    private static final Duration PAUSE_AFTER_FAILURE = Duration.ofSeconds(10);
    private static final String EVERY_GPU = "";

    private final Nvml nvml;
    private final AgentMetrics metrics;
    private final Runnable changed;
    private final Map<String, String> troubles = new ConcurrentHashMap<>();
    private final Thread thread;
    private volatile boolean closed;

    /** Starts listening; {@code changed} is called when {@link #trouble} may answer something else. */
    public XidWatcher(Nvml nvml, AgentMetrics metrics, Runnable changed) {
        this.nvml = nvml;
        this.metrics = metrics;
        this.changed = changed;
        thread = new Thread(this::run, "xid");
        thread.setDaemon(true);
        thread.start();
    }

    /** What is wrong with a GPU; empty if nothing. */
    public String trouble(String uuid) {
        return troubles.getOrDefault(uuid, troubles.getOrDefault(EVERY_GPU, ""));
    }

    @Override
    public void close() {
        closed = true;
        try {
            thread.join(); // within WAIT; NVML must not be shut down under it
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        boolean failed = false;
        while (!closed) {
            try {
                Optional<Nvml.Xid> xid = nvml.nextXid(WAIT);
                failed = false;
                xid.ifPresent(this::note);
            } catch (NvmlException e) {
                if (!failed) {
                    LOG.log(Level.WARNING, "Cannot listen for XID errors, trying on: {0}", e.getMessage());
                    failed = true;
                }
                pause();
            } catch (InterruptedException e) {
                closed = true;
            }
        }
    }

    private void note(Nvml.Xid xid) {
        metrics.xid(xid.uuid(), xid.number());
        if (OF_APPLICATIONS.contains(xid.number())) {
            LOG.log(
                    Level.INFO,
                    "XID {0} on {1}: an application's own error, the GPU stays in use",
                    xid.number(),
                    xid.uuid());
        } else if (troubles.putIfAbsent(
                        xid.uuid(), "XID error " + xid.number() + " (docs.nvidia.com/deploy/xid-errors)")
                == null) {
            LOG.log(
                    Level.ERROR,
                    "XID {0} on {1}: no new vGPU lands there until this pod is restarted",
                    xid.number(),
                    xid.uuid().isEmpty() ? "a GPU that does not tell its name, so on any" : xid.uuid());
            changed.run();
        }
    }

    private void pause() {
        long until = System.nanoTime() + PAUSE_AFTER_FAILURE.toNanos();
        while (!closed && System.nanoTime() < until) {
            try {
                Thread.sleep(Duration.ofMillis(200).toMillis());
            } catch (InterruptedException e) {
                closed = true;
            }
        }
    }
}
