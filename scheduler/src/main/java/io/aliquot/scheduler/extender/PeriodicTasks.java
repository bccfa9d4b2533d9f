package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.ledger.Ledger;
import java.time.Duration;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What has to be done from time to time. */
final class PeriodicTasks implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(PeriodicTasks.class);

    /** One for each, so that none waits for what another one waits for. */
    private static final int THREADS = 6;

    private final ScheduledExecutorService threads = Executors.newScheduledThreadPool(THREADS, task -> {
        var thread = new Thread(task, "housekeeping");
        thread.setDaemon(true);
        return thread;
    });

    PeriodicTasks(
            Ledger ledger,
            Waker waker,
            Evictor evictor,
            Auditor auditor,
            WriteReconciler outcomes,
            PendingPodEvents storyteller) {
        every(Duration.ofMillis(100), waker::wake);
        every(Duration.ofSeconds(1), ledger::expire);
        every(Duration.ofSeconds(1), evictor::evict);
        every(Duration.ofSeconds(5), auditor::audit);
        every(Duration.ofSeconds(2), outcomes::reconcileAll);
        every(Duration.ofSeconds(1), storyteller::tell);
    }

    private void every(Duration pause, Runnable work) {
        var unused = threads.scheduleWithFixedDelay(
                () -> {
                    try {
                        work.run();
                    } catch (RuntimeException e) { // or it would never be done again
                        LOG.error("housekeeping failed", e);
                    }
                },
                pause.toMillis(),
                pause.toMillis(),
                TimeUnit.MILLISECONDS);
    }

    @Override
    public void close() {
        threads.shutdownNow();
    }
}
