package io.aliquot.scheduler.server.ports;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.springframework.context.SmartLifecycle;

/**
 * Asks the webhooks' clients to close their connections before the server stops. Otherwise the API server can send a
 * review over a kept connection in the moment in which the server closes it, gets no answer, and refuses a user's pod.
 */
final class ConnectionDrain implements SmartLifecycle {
    private static final Duration LONGEST = Duration.ofSeconds(3);
    private static final Duration STEP = Duration.ofMillis(20);

    private final Runnable closeAfterAnswer;
    private final LongSupplier connections;
    private final LongSupplier nanoTime;
    private volatile boolean running;

    /**
     * Waits until {@code connections} is 0, for at most three seconds.
     *
     * @param closeAfterAnswer makes each further answer the last one over its connection
     * @param connections the number of open connections
     */
    ConnectionDrain(Runnable closeAfterAnswer, LongSupplier connections, LongSupplier nanoTime) {
        this.closeAfterAnswer = closeAfterAnswer;
        this.connections = connections;
        this.nanoTime = nanoTime;
    }

    @Override
    public void start() {
        running = true;
    }

    @Override
    public boolean isRunning() {
        return running;
    }

    /** Spring stops the highest phase first, so this runs before the server's graceful shutdown. */
    @Override
    public int getPhase() {
        return Integer.MAX_VALUE;
    }

    @Override
    public void stop() {
        closeAfterAnswer.run();
        long end = nanoTime.getAsLong() + LONGEST.toNanos();
        try {
            while (connections.getAsLong() > 0 && end - nanoTime.getAsLong() > 0) {
                TimeUnit.NANOSECONDS.sleep(STEP.toNanos());
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        running = false;
    }
}
