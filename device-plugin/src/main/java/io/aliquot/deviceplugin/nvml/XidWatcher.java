package io.aliquot.deviceplugin.nvml;

import io.aliquot.deviceplugin.problem.Problem;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** Listens for XID errors on a thread of its own. */
final class XidWatcher implements AutoCloseable {
    private static final Logger LOG = System.getLogger(XidWatcher.class.getName());
    private static final Duration PAUSE_AFTER_FAILURE = Duration.ofSeconds(10);

    private final Nvml nvml;
    private final Consumer<Nvml.Xid> onXid;
    private final Duration wait;
    private final Problem listening = new Problem(LOG, Level.WARNING);
    private final CountDownLatch closed = new CountDownLatch(1);
    private final Thread thread;

    /**
     * Starts to listen; sees the errors from now on, unless the driver refuses and the thread has to try again.
     *
     * @param onXid called from another thread for each XID error
     * @param wait how long a call of NVML may wait for one, and so {@link #close} for the call
     */
    XidWatcher(Nvml nvml, Consumer<Nvml.Xid> onXid, Duration wait) {
        this.nvml = nvml;
        this.onXid = onXid;
        this.wait = wait;
        try {
            nvml.listenForXids();
        } catch (NvmlException e) {
            listening.report("Cannot listen for XID errors, retrying: " + e.getMessage());
        }
        thread = new Thread(this::run, "xid");
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void close() {
        closed.countDown();
        try {
            thread.join(); // the thread must not call NVML after its shutdown
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        try {
            while (closed.getCount() > 0) {
                try {
                    List<Nvml.Xid> xids = nvml.nextXid(wait);
                    listening.resolve();
                    xids.forEach(onXid);
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
}
