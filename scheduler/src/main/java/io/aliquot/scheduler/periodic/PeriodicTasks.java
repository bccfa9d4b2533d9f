package io.aliquot.scheduler.periodic;

import io.aliquot.scheduler.server.health.Liveness;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Runs the periodic tasks, each in a thread of its own, so that a slow task delays no other. A run that throws is
 * logged and the task goes on. A task that has not completed a run for {@link #LIMIT_INTERVALS} intervals, and at least
 * {@link #SHORTEST_LIMIT}, fails the liveness probe.
 */
public final class PeriodicTasks implements Liveness, AutoCloseable {
    static final int LIMIT_INTERVALS = 60;
    /** Longer than the API server's timeouts within one run can take together. */
    static final Duration SHORTEST_LIMIT = Duration.ofMinutes(10);

    private static final Logger LOG = LoggerFactory.getLogger(PeriodicTasks.class);

    private final List<PeriodicTask> tasks;
    private final LongSupplier nanoTime;
    /** When each task completed a run last, by name. */
    private final Map<String, Long> completed = new ConcurrentHashMap<>();

    private final ScheduledExecutorService threads;

    public PeriodicTasks(List<PeriodicTask> tasks, LongSupplier nanoTime) {
        this.tasks = List.copyOf(tasks);
        this.nanoTime = nanoTime;
        threads = Executors.newScheduledThreadPool(
                tasks.size(), Thread.ofPlatform().name("periodic-task").daemon().factory());
        long now = nanoTime.getAsLong();
        tasks.forEach(task -> completed.put(task.name(), now));
        tasks.forEach(this::start);
    }

    private void start(PeriodicTask task) {
        long interval = task.interval().toMillis();
        var unused = threads.scheduleWithFixedDelay(() -> run(task), interval, interval, TimeUnit.MILLISECONDS);
    }

    private void run(PeriodicTask task) {
        try {
            task.work().run();
            completed.put(task.name(), nanoTime.getAsLong());
        } catch (Throwable e) { // the executor would never run the task again
            LOG.error("periodic task {} failed", task.name(), e);
        }
    }

    @Override
    public Optional<String> broken() {
        long now = nanoTime.getAsLong();
        return tasks.stream()
                .filter(task -> age(task, now).compareTo(limit(task)) > 0)
                .findFirst()
                .map(task -> "periodic task " + task.name() + " has not completed for "
                        + age(task, now).toSeconds() + " s");
    }

    private Duration age(PeriodicTask task, long now) {
        return Duration.ofNanos(now - completed.getOrDefault(task.name(), now));
    }

    private static Duration limit(PeriodicTask task) {
        Duration limit = task.interval().multipliedBy(LIMIT_INTERVALS);
        return limit.compareTo(SHORTEST_LIMIT) < 0 ? SHORTEST_LIMIT : limit;
    }

    @Override
    public void close() {
        threads.shutdownNow();
    }
}
