package io.aliquot.deviceplugin.usage;

import io.aliquot.deviceplugin.nvml.NvmlException;
import io.aliquot.deviceplugin.problem.Problem;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Takes a sample of an open NVML once a second, on a thread of its own, until it is closed. */
public final class UsageSampler implements AutoCloseable {
    private static final Logger LOG = System.getLogger(UsageSampler.class.getName());
    private static final Duration PERIOD = Duration.ofSeconds(1);

    private final UsageTracker tracker;
    private final UsageTracker.Source source;
    private final Problem failure = new Problem(LOG, Level.WARNING);
    private final CountDownLatch closed = new CountDownLatch(1);
    private final Thread thread;

    /** Starts to sample. */
    public UsageSampler(UsageTracker tracker, UsageTracker.Source source) {
        this.tracker = tracker;
        this.source = source;
        thread = new Thread(this::run, "usage");
        thread.setDaemon(true);
        thread.start();
    }

    /** Returns when the thread no longer calls NVML. */
    @Override
    public void close() {
        closed.countDown();
        try {
            thread.join();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        try {
            do {
                try {
                    tracker.sample(source);
                    failure.resolve();
                } catch (NvmlException | RuntimeException e) {
                    failure.report("cannot read how the GPUs are used, retrying: " + e.getMessage());
                }
            } while (!closed.await(PERIOD.toNanos(), TimeUnit.NANOSECONDS));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
