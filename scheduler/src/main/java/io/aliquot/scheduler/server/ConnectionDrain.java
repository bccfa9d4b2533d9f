package io.aliquot.scheduler.server;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.springframework.context.SmartLifecycle;

/**
 * Before the server stops, each client is asked to close its connections. Otherwise an API server that sends a review
 * over one it kept, in the moment in which the server closes it, gets no answer, and refuses somebody's pod.
 */
final class ConnectionDrain implements SmartLifecycle {
    private static final Duration LONGEST = Duration.ofSeconds(3);
    private static final Duration STEP = Duration.ofMillis(20);

    private final PortPolicyValve doors;
    private volatile boolean running;

    ConnectionDrain(PortPolicyValve doors) {
        this.doors = doors;
    }

    @Override
    public void start() {
        running = true;
    }

    @Override
    public boolean isRunning() {
        return running;
    }

    /** The last to start is the first to stop, before the server's own graceful shutdown. */
    @Override
    public int getPhase() {
        return Integer.MAX_VALUE;
    }

    @Override
    public void stop() {
        doors.leave();
        long end = System.nanoTime() + LONGEST.toNanos();
        try {
            while (doors.connections(PortPolicy.WEBHOOKS) > 0 && System.nanoTime() < end) {
                TimeUnit.NANOSECONDS.sleep(STEP.toNanos());
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        running = false;
    }
}
