package io.aliquot.deviceplugin.arbiter;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import io.aliquot.api.retry.Backoff;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.problem.Problem;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/**
 * The arbiter's process, {@code native-shim/arbiter}: starts it, gives it lists of containers, and starts it again with
 * exponential backoff when it ends. While it does not run, loans expire within a second and each container keeps its own
 * cores. It ends with this process, because its input ends.
 *
 * <p>Thread-safe.
 */
public final class ArbiterProcess implements AutoCloseable {
    /** The program's name in the folder of the shim. */
    public static final String PROGRAM = "aliquot-arbiter";

    private static final Logger LOG = System.getLogger(ArbiterProcess.class.getName());
    private static final Duration FIRST_PAUSE = Duration.ofMillis(100);
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(30);

    /** A program that does not read its input for so long is ended. */
    private static final Duration HANGING = Duration.ofSeconds(10);

    private final List<String> command;
    private final AgentMetrics metrics;
    private final LongSupplier nanoTime;
    private final Thread thread = new Thread(this::run, "arbiter");
    private final CountDownLatch closed = new CountDownLatch(1);

    @GuardedBy("this")
    private byte[] list = new byte[0];

    @GuardedBy("this")
    private boolean isNew;

    @GuardedBy("this")
    private @Nullable Process process;

    @GuardedBy("this")
    private OptionalLong writingSince = OptionalLong.empty();

    /**
     * Starts nothing before {@link #start}.
     *
     * @param program the file
     * @param regions the folder of the containers' regions
     * @param agentFiles the folder of the files in which the program writes
     * @param lowFloor percent of a GPU, 0 to 100, that a container of low priority keeps
     * @param nanoTime a clock such as {@link System#nanoTime}
     */
    public ArbiterProcess(
            Path program, Path regions, Path agentFiles, int lowFloor, AgentMetrics metrics, LongSupplier nanoTime) {
        command = List.of(program.toString(), regions.toString(), agentFiles.toString(), Integer.toString(lowFloor));
        this.metrics = metrics;
        this.nanoTime = nanoTime;
        thread.setDaemon(true);
    }

    /** Starts the program. */
    public void start() {
        thread.start();
    }

    /**
     * Gives the program a list of containers, which replaces the one before; does not wait for it. Each line is {@code SLOT
     * UUID CORES POLICY PRIORITY NVML}, as in {@code native-shim/arbiter/main.c}; the lines end with a newline.
     */
    public synchronized void tell(String lines) {
        list = (lines + ".\n").getBytes(StandardCharsets.US_ASCII);
        isNew = true;
        if (process != null
                && writingSince.isPresent()
                && nanoTime.getAsLong() - writingSince.getAsLong() > HANGING.toNanos()) {
            LOG.log(Level.WARNING, "Ending the arbiter, which has not read its input for {0} s", HANGING.toSeconds());
            process.destroyForcibly();
        }
        notifyAll();
    }

    /** Ends the program by the end of its input. */
    @Override
    public void close() {
        synchronized (this) {
            closed.countDown();
            if (process != null && writingSince.isPresent()) {
                process.destroyForcibly();
            }
            notifyAll();
        }
        try {
            thread.join(HANGING);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        var backoff = new Backoff(nanoTime, FIRST_PAUSE, LONGEST_PAUSE);
        var problem = new Problem(LOG, Level.WARNING);
        try {
            do {
                try {
                    String end = runOnce();
                    if (closed.getCount() > 0) {
                        problem.report("The arbiter has ended (" + end + "); starting it again");
                    }
                } catch (IOException e) {
                    problem.report("Cannot start the arbiter, so no GPU time is lent; trying again: " + e.getMessage());
                }
                metrics.arbiterRuns(false);
            } while (!closed.await(backoff.start().toNanos(), TimeUnit.NANOSECONDS));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Runs the program until it ends; returns how it did. */
    private String runOnce() throws IOException, InterruptedException {
        Process started = new ProcessBuilder(command)
                .redirectOutput(ProcessBuilder.Redirect.INHERIT)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        metrics.arbiterRuns(true);
        synchronized (this) {
            process = started;
            isNew = list.length > 0;
        }
        var unused = started.onExit().thenRun(this::wake);
        try (OutputStream input = started.getOutputStream()) {
            Optional<byte[]> next = next(started);
            while (next.isPresent()) {
                write(input, next.get());
                next = next(started);
            }
        } catch (IOException e) {
            LOG.log(Level.DEBUG, "The arbiter no longer reads its input: {0}", e.getMessage());
        }
        if (!started.waitFor(HANGING.toSeconds(), TimeUnit.SECONDS)) {
            started.destroyForcibly().waitFor();
        }
        synchronized (this) {
            process = null;
        }
        return "exit code " + started.exitValue();
    }

    private synchronized void wake() {
        notifyAll();
    }

    /** The next list; empty if the program has ended or is to end. */
    private synchronized Optional<byte[]> next(Process started) throws InterruptedException {
        while (closed.getCount() > 0 && started.isAlive() && !isNew) {
            wait();
        }
        isNew = false;
        return closed.getCount() == 0 || !started.isAlive() ? Optional.empty() : Optional.of(list);
    }

    private void write(OutputStream input, byte[] bytes) throws IOException {
        synchronized (this) {
            writingSince = OptionalLong.of(nanoTime.getAsLong());
        }
        try {
            input.write(bytes);
            input.flush();
        } finally {
            synchronized (this) {
                writingSince = OptionalLong.empty();
            }
        }
    }
}
