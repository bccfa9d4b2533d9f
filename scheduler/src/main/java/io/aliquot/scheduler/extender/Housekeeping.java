package io.aliquot.scheduler.extender;

import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What has to be done from time to time. */
final class Housekeeping implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Housekeeping.class);

    private final ScheduledExecutorService threads = Executors.newScheduledThreadPool(2, task -> {
        var thread = new Thread(task, "housekeeping");
        thread.setDaemon(true);
        return thread;
    });

    Housekeeping(Waker waker, Auditor auditor, Binder binder, LedgerMetrics metrics) {
        every(1, waker::wake);
        every(5, metrics::refresh);
        every(5, auditor::audit);
        every(10, binder::settle);
    }

    private void every(int seconds, Runnable work) {
        var unused = threads.scheduleWithFixedDelay(
                () -> {
                    try {
                        work.run();
                    } catch (RuntimeException e) { // or it would never be done again
                        LOG.error("housekeeping failed", e);
                    }
                },
                seconds,
                seconds,
                TimeUnit.SECONDS);
    }

    @Override
    public void close() {
        threads.shutdownNow();
    }
}
