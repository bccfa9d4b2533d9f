package io.aliquot.deviceplugin.periodic;

import io.aliquot.deviceplugin.problem.Problem;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** Work that a thread of its own repeats until {@link #close}. A run that fails is logged once, and the work goes on. */
public final class PeriodicTask implements AutoCloseable {
    /** One run of the work. */
    public interface Work {
        /** Runs once. */
        void run() throws Exception;
    }

    private final String name;
    private final Duration pause;
    private final Work work;
    private final Problem failure = new Problem(System.getLogger(PeriodicTask.class.getName()), Level.WARNING);
    private final ScheduledExecutorService thread;

    /**
     * Does nothing before {@link #start}.
     *
     * @param name of the thread, and of the work in the log
     * @param pause between the end of a run and the start of the next
     */
    public PeriodicTask(String name, Duration pause, Work work) {
        this.name = name;
        this.pause = pause;
        this.work = work;
        thread = Executors.newSingleThreadScheduledExecutor(
                Thread.ofPlatform().name(name).daemon().factory());
    }

    /** Starts the first run at once; returns this. */
    public PeriodicTask start() {
        var unused = thread.scheduleWithFixedDelay(this::run, 0, pause.toMillis(), TimeUnit.MILLISECONDS);
        return this;
    }

    private void run() {
        try {
            work.run();
            failure.resolve();
        } catch (Exception e) { // the executor would never run it again
            failure.report("The task " + name + " failed, trying again: " + e);
        }
    }

    /** Returns when no run is under way; none follows. */
    @Override
    public void close() {
        thread.close();
    }
}
