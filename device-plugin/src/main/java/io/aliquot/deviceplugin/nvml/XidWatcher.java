package io.aliquot.deviceplugin.nvml;

import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.problem.Problem;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Listens for XID errors on a thread of its own. After a critical one, the GPU stays unhealthy until this process ends:
 * no event reports a repair, and an admin has to drain a GPU before resetting it anyway.
 */
final class XidWatcher implements AutoCloseable {
    private static final Logger LOG = System.getLogger(XidWatcher.class.getName());

    /** Errors caused by a program, after which the GPU works as before (docs.nvidia.com/deploy/xid-errors). */
    private static final Set<Long> APPLICATION_ERRORS = Set.of(
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
    private final Runnable onFailure;
    private final Map<String, String> failures = new ConcurrentHashMap<>();
    private final Problem listening = new Problem(LOG, Level.WARNING);
    private final CountDownLatch closed = new CountDownLatch(1);
    private final Thread thread;

    /**
     * Starts to listen.
     *
     * @param onFailure called after an error that makes a GPU unhealthy
     */
    XidWatcher(Nvml nvml, AgentMetrics metrics, Runnable onFailure) {
        this.nvml = nvml;
        this.metrics = metrics;
        this.onFailure = onFailure;
        thread = new Thread(this::run, "xid");
        thread.setDaemon(true);
        thread.start();
    }

    /** The first critical XID error of a GPU, as a reason for being unhealthy; empty if there was none. */
    Optional<String> failure(String uuid) {
        return Optional.ofNullable(failures.get(uuid)).or(() -> Optional.ofNullable(failures.get(EVERY_GPU)));
    }

    @Override
    public void close() {
        closed.countDown();
        try {
            thread.join(); // within WAIT: the thread must not call NVML after its shutdown
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        try {
            while (closed.getCount() > 0) {
                try {
                    Optional<Nvml.Xid> xid = nvml.nextXid(WAIT);
                    listening.resolve();
                    xid.ifPresent(this::record);
                } catch (NvmlException e) {
                    listening.report("Cannot listen for XID errors, retrying: " + e.getMessage());
                    if (closed.await(PAUSE_AFTER_FAILURE.toMillis(), TimeUnit.MILLISECONDS)) {
                        return;
                    }
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void record(Nvml.Xid xid) {
        metrics.xidReported(xid.uuid(), xid.number());
        if (APPLICATION_ERRORS.contains(xid.number())) {
            LOG.log(
                    Level.INFO,
                    "XID {0} on GPU {1}: the error of an application; the GPU stays healthy",
                    xid.number(),
                    xid.uuid());
        } else if (failures.putIfAbsent(
                        xid.uuid(), "XID error " + xid.number() + " (docs.nvidia.com/deploy/xid-errors)")
                == null) {
            LOG.log(
                    Level.ERROR,
                    "XID {0}: {1} until this pod restarts",
                    xid.number(),
                    xid.uuid().isEmpty()
                            ? "the GPU did not return its UUID, so all GPUs are unhealthy and take no new vGPU"
                            : "GPU " + xid.uuid() + " is unhealthy and takes no new vGPU");
            onFailure.run();
        }
    }
}
