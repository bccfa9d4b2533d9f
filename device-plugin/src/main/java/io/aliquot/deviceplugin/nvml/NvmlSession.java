package io.aliquot.deviceplugin.nvml;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import io.aliquot.api.retry.Backoff;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.problem.Problem;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/**
 * The lifecycle of NVML, on a thread of its own: opens the library, reads all GPUs periodically, closes it after a failure
 * and while the driver is to be released, and opens it again with exponential backoff. Each call may hang as long as the
 * driver does; {@link #latest} never waits for one.
 *
 * <p>While NVML is open, an {@link XidWatcher} and the {@link User}s use it, too.
 *
 * <p>Thread-safe.
 */
public final class NvmlSession implements AutoCloseable {
    private static final Logger LOG = System.getLogger(NvmlSession.class.getName());
    private static final Duration FIRST_PAUSE = Duration.ofSeconds(1);
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(30);

    /** A call that takes longer is said to hang. NVML's slowest calls take seconds, while a GPU wakes up. */
    private static final Duration HANGING = Duration.ofSeconds(30);

    /** NVML finds a GPU that has come back only when it is opened again. With the usual interval 45 s. */
    private static final int INTERVALS_BEFORE_REOPENING = 9;

    /** The driver is loaded; for so long its files may still be incomplete. */
    private static final Duration RESTART_FOR_FILES = Duration.ofMinutes(1);

    /** Without a sign of the driver, a restart is only a guess. */
    private static final Duration RESTART_FOR_LIBRARY = Duration.ofMinutes(10);

    /** A close waits for as long. */
    private static final Duration LONGEST_XID_WAIT = Duration.ofSeconds(1);

    private static final Duration SHUTDOWN_TIMEOUT = Duration.ofSeconds(2);
    private static final int MOST_XIDS = 1000;

    /** Opens NVML. */
    public interface Opener {
        Nvml open() throws NvmlException;

        /** The version of the driver that the kernel has loaded; empty if none is, or if the kernel does not tell. */
        default Optional<String> loadedDriver() {
            return Optional.empty();
        }
    }

    /** Uses NVML while it is open, on threads of its own. */
    public interface User {
        /**
         * Starts to use NVML.
         *
         * @return ends the use; when its {@code close} has returned, no call of NVML runs and none follows
         */
        AutoCloseable use(Nvml nvml);
    }

    private final Opener opener;
    private final List<User> users;
    private final AgentMetrics metrics;
    private final Duration interval;
    private final Runnable onChange;
    private final LongSupplier nanoTime;
    private final Semaphore wakeUps = new Semaphore(0);
    private final AtomicLong readings = new AtomicLong();
    private final Thread thread;

    // Used by the thread alone.
    private final Backoff backoff;
    private final Problem unavailable = new Problem(LOG, Level.ERROR);
    private @Nullable Open open;
    private int driverLoads;
    private boolean driverMissing;
    private String driverVersion = "";
    private OptionalLong unavailableSince = OptionalLong.empty();
    private OptionalLong driverLoadedSince = OptionalLong.empty();

    @GuardedBy("this")
    private final Problem hang = new Problem(LOG, Level.ERROR);

    @GuardedBy("this")
    private NvmlReading reading = new NvmlReading.NotAsked("NVML is being opened");

    @GuardedBy("this")
    private long readAt;

    @GuardedBy("this")
    private OptionalLong callStartedAt = OptionalLong.empty();

    @GuardedBy("this")
    private String release = "";

    @GuardedBy("this")
    private boolean closed;

    @GuardedBy("this")
    private Optional<String> restartReason = Optional.empty();

    @GuardedBy("this")
    private final Deque<Nvml.Xid> xids = new ArrayDeque<>();

    /**
     * Opens nothing before {@link #start}.
     *
     * @param users what uses NVML while it is open
     * @param interval pause between two readings
     * @param onChange called from other threads after a reading that differs from the one before, and after an XID error
     * @param nanoTime a clock such as {@link System#nanoTime}
     */
    public NvmlSession(
            Opener opener,
            List<User> users,
            AgentMetrics metrics,
            Duration interval,
            Runnable onChange,
            LongSupplier nanoTime) {
        this.opener = opener;
        this.users = List.copyOf(users);
        this.metrics = metrics;
        this.interval = interval;
        this.onChange = onChange;
        this.nanoTime = nanoTime;
        backoff = new Backoff(nanoTime, FIRST_PAUSE, LONGEST_PAUSE);
        readAt = nanoTime.getAsLong();
        thread = new Thread(this::run, "nvml");
        thread.setDaemon(true); // a call that hangs must not delay the end of the process
    }

    /** Starts to open and to read NVML. */
    public void start() {
        thread.start();
    }

    /** The latest reading; that NVML hangs, if the one under way takes too long. Never waits. */
    public synchronized NvmlReading latest() {
        boolean hanging =
                callStartedAt.isPresent() && nanoTime.getAsLong() - callStartedAt.getAsLong() > HANGING.toNanos();
        NvmlReading latest = reading;
        if (hanging) {
            latest = new NvmlReading.Unavailable(hang.report("NVML has not returned from a call for more than "
                    + HANGING.toSeconds() + " s: NVIDIA's driver hangs; see the kernel's log, this agent goes on when"
                    + " the call returns"));
        } else if (hang.resolve()) {
            LOG.log(Level.INFO, "The call of NVML has returned");
        }
        metrics.nvml(latest instanceof NvmlReading.Gpus, hanging);
        return latest;
    }

    /** How many readings have ended, whatever their result. */
    long readings() {
        return readings.get();
    }

    /** When the {@link #latest} reading began, by {@code nanoTime}. */
    public synchronized long readAt() {
        return readAt;
    }

    /** The XID errors since the last call; of very many only the last. */
    public synchronized List<Nvml.Xid> takeXids() {
        List<Nvml.Xid> taken = List.copyOf(xids);
        xids.clear();
        return taken;
    }

    /**
     * Closes NVML and keeps it closed, or lets it be opened again.
     *
     * @param reason for a log line; empty: NVML may be open
     */
    public synchronized void release(String reason) {
        if (!release.equals(reason)) {
            release = reason;
            wakeUps.release();
        }
    }

    /** Why only a restart of this container can help; empty if it would not. */
    public synchronized Optional<String> restartReason() {
        return restartReason;
    }

    /** Closes NVML, unless a call of it hangs; returns within seconds. */
    @Override
    public void close() {
        synchronized (this) {
            closed = true;
        }
        wakeUps.release();
        try {
            thread.join(SHUTDOWN_TIMEOUT);
            if (thread.isAlive()) {
                LOG.log(Level.WARNING, "Exiting before NVML is closed: one of its calls has not returned");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void onXid(Nvml.Xid xid) {
        metrics.xidReported(xid.uuid(), xid.number());
        synchronized (this) {
            if (xids.size() == MOST_XIDS) {
                xids.removeFirst();
            }
            xids.addLast(xid);
        }
        wakeUps.release();
        onChange.run();
    }

    private void run() {
        try {
            while (!isClosed()) {
                NvmlReading next;
                try {
                    next = step();
                } catch (RuntimeException e) {
                    next = new NvmlReading.Unavailable(unavailable.report("cannot read NVML: " + e));
                }
                if (publish(next)) {
                    onChange.run();
                }
                awaitNextStep();
            }
            closeNvml();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private synchronized boolean isClosed() {
        return closed;
    }

    private void awaitNextStep() throws InterruptedException {
        if (wakeUps.tryAcquire(interval.toNanos(), TimeUnit.NANOSECONDS)) {
            wakeUps.drainPermits(); // one reading serves all requests made until now
        }
    }

    /** Makes a reading the latest one; returns whether it differs from the one before. */
    private synchronized boolean publish(NvmlReading next) {
        boolean differs = !next.equals(reading);
        reading = next;
        readAt = callStartedAt.orElseGet(nanoTime);
        callStartedAt = OptionalLong.empty();
        readings.incrementAndGet();
        return differs;
    }

    private NvmlReading step() {
        String releaseReason;
        synchronized (this) {
            callStartedAt = OptionalLong.of(nanoTime.getAsLong());
            releaseReason = release;
        }
        if (!releaseReason.isEmpty()) {
            if (open != null) {
                LOG.log(Level.INFO, "Closing NVML: {0}", releaseReason);
                closeNvml();
            }
            unavailableSince = OptionalLong.empty();
            return new NvmlReading.NotAsked(releaseReason);
        }
        if (open == null && !backoff.isOver()) {
            checkRestart(false);
            return new NvmlReading.Unavailable(unavailable.message().orElse("NVML is not open yet"));
        }
        try {
            NvmlReading.Gpus gpus = read();
            backoff.reset();
            unavailableSince = OptionalLong.empty();
            driverLoadedSince = OptionalLong.empty();
            if (unavailable.resolve()) {
                LOG.log(Level.INFO, "NVML answers again");
            }
            return gpus;
        } catch (NvmlException e) {
            closeNvml();
            if (unavailableSince.isEmpty()) {
                unavailableSince = OptionalLong.of(nanoTime.getAsLong());
            }
            driverMissing |= e.kind() == NvmlException.Kind.DRIVER_NOT_LOADED;
            checkRestart(e.kind() == NvmlException.Kind.NO_LIBRARY);
            return new NvmlReading.Unavailable(unavailable.report(String.valueOf(e.getMessage())));
        }
    }

    private NvmlReading.Gpus read() throws NvmlException {
        Open present = open;
        if (present == null) {
            backoff.start();
            present = openNvml();
        }
        Nvml.Listing listing = present.nvml.gpus();
        boolean lost = !listing.complete()
                || listing.gpus().stream().anyMatch(gpu -> !gpu.condition().accessible());
        if (lost
                && nanoTime.getAsLong() - present.openedAt
                        > interval.multipliedBy(INTERVALS_BEFORE_REOPENING).toNanos()) {
            closeNvml();
        }
        return new NvmlReading.Gpus(listing, driverVersion, driverLoads);
    }

    private Open openNvml() throws NvmlException {
        Nvml nvml = opener.open();
        Open opened;
        try {
            String version = nvml.driverVersion();
            checkVersion(version);
            driverVersion = version;
            driverLoads += driverMissing ? 1 : 0;
            driverMissing = false;
            List<AutoCloseable> uses = new ArrayList<>();
            Duration wait = interval.compareTo(LONGEST_XID_WAIT) < 0 ? interval : LONGEST_XID_WAIT;
            uses.add(new XidWatcher(nvml, this::onXid, wait));
            users.forEach(user -> uses.add(user.use(nvml)));
            opened = new Open(nvml, uses, nanoTime.getAsLong());
        } catch (NvmlException e) {
            nvml.close();
            throw e;
        }
        open = opened;
        return opened;
    }

    /** A process keeps the files of the driver with which its container started. */
    private void checkVersion(String version) throws NvmlException {
        if (!driverVersion.isEmpty() && !driverVersion.equals(version)) {
            String reason = "NVIDIA's driver was changed from version " + driverVersion + " to " + version;
            requestRestart(reason);
            throw new NvmlException(reason);
        }
    }

    private void checkRestart(boolean noLibrary) {
        long now = nanoTime.getAsLong();
        Optional<String> loaded = opener.loadedDriver();
        if (loaded.isEmpty()) {
            driverLoadedSince = OptionalLong.empty();
            if (noLibrary && now - unavailableSince.orElse(now) > RESTART_FOR_LIBRARY.toNanos()) {
                requestRestart("NVML could not be opened for " + RESTART_FOR_LIBRARY.toMinutes() + " minutes");
            }
            return;
        }
        if (driverLoadedSince.isEmpty()) {
            driverLoadedSince = OptionalLong.of(now);
        }
        if (!driverVersion.isEmpty() && !driverVersion.equals(loaded.get())) {
            requestRestart("NVIDIA's driver was changed from version " + driverVersion + " to " + loaded.get());
        } else if (now - driverLoadedSince.getAsLong() > RESTART_FOR_FILES.toNanos()) {
            requestRestart("version " + loaded.get() + " of NVIDIA's driver is loaded, and NVML does not answer");
        }
    }

    private void requestRestart(String reason) {
        synchronized (this) {
            restartReason = Optional.of(reason);
        }
        onChange.run();
    }

    private void closeNvml() {
        if (open != null) {
            open.close();
            open = null;
        }
    }

    private record Open(Nvml nvml, List<AutoCloseable> uses, long openedAt) {
        /** Ends the uses first: they call NVML. */
        void close() {
            for (AutoCloseable use : uses.reversed()) {
                try {
                    use.close();
                } catch (Exception e) {
                    LOG.log(Level.WARNING, "Cannot end a use of NVML", e);
                }
            }
            nvml.close();
        }
    }
}
