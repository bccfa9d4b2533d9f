package io.aliquot.scheduler.periodic;

import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Runs the periodic tasks, each in a thread of its own, so that a slow task delays no other. */
final class PeriodicTasks implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(PeriodicTasks.class);

    private final ScheduledExecutorService threads;

    PeriodicTasks(List<PeriodicTask> tasks) {
        threads = Executors.newScheduledThreadPool(tasks.size(), task -> {
            var thread = new Thread(task, "periodic-task");
            thread.setDaemon(true);
            return thread;
        });
        tasks.forEach(this::start);
    }

    private void start(PeriodicTask task) {
        long interval = task.interval().toMillis();
        var unused = threads.scheduleWithFixedDelay(() -> run(task), interval, interval, TimeUnit.MILLISECONDS);
    }

    private static void run(PeriodicTask task) {
        try {
            task.work().run();
        } catch (RuntimeException e) { // an exception would end the repetition
            LOG.error("periodic task {} failed", task.name(), e);
        }
    }

    @Override
    public void close() {
        threads.shutdownNow();
    }
}
