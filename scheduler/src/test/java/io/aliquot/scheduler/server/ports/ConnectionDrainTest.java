package io.aliquot.scheduler.server.ports;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
class ConnectionDrainTest {
    private static final long SECOND = Duration.ofSeconds(1).toNanos();

    private final AtomicInteger asked = new AtomicInteger();

    /** Regression: where the clock overflowed within the three seconds, stop did not wait at all. */
    @Test
    void clientsGetTheirTimeAlsoWhenTheClockOverflows() {
        var nanoTime = new AtomicLong(Long.MAX_VALUE - SECOND);
        var connections = new AtomicInteger(3);
        var drain = new ConnectionDrain(
                asked::incrementAndGet, connections::getAndDecrement, () -> nanoTime.getAndAdd(SECOND / 2));
        drain.start();

        drain.stop();

        assertThat(connections).as("one below 0 after the last look").hasValue(-1);
        assertThat(asked).hasValue(1);
        assertThat(drain.isRunning()).isFalse();
    }

    @Test
    void clientsThatKeepTheirConnectionsAreWaitedForNoLongerThanThreeSeconds() {
        var nanoTime = new AtomicLong(Long.MAX_VALUE - SECOND);
        var drain = new ConnectionDrain(asked::incrementAndGet, () -> 1, () -> nanoTime.getAndAdd(SECOND));

        drain.stop();

        assertThat(nanoTime.get() - (Long.MAX_VALUE - SECOND)).isBetween(3 * SECOND, 5 * SECOND);
    }
}
