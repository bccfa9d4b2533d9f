package io.aliquot.scheduler.kubernetes.client;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class BindBatcherTest {
    private static final Duration PERIOD = Duration.ofMillis(30);

    private final AtomicLong now = new AtomicLong(Duration.ofSeconds(100).toNanos());
    private final BindBatcher convoy = new BindBatcher(PERIOD, now::get);

    private Duration departureAfter(long millis) {
        now.addAndGet(Duration.ofMillis(millis).toNanos());
        return convoy.await();
    }

    @Test
    void theFirstGoesAtOnce() {
        assertThat(departureAfter(0)).isZero();
    }

    @Test
    void whoComesAPeriodAfterTheLastGoesAtOnce() {
        departureAfter(0);
        assertThat(departureAfter(30)).isZero();
        assertThat(departureAfter(31)).isZero();
    }

    @Test
    void thoseThatComeInQuickSuccessionLeaveAtTheSameTime() {
        departureAfter(20); // 100.02 s; convoys leave at 100.02, 100.05, …
        assertThat(departureAfter(1)).isEqualTo(Duration.ofMillis(29));
        assertThat(departureAfter(9)).isEqualTo(Duration.ofMillis(20));
        assertThat(departureAfter(19)).isEqualTo(Duration.ofMillis(1));
        assertThat(departureAfter(1)).as("the next one").isEqualTo(PERIOD);
    }

    @Test
    void nobodyWaitsLongerThanAPeriodWhateverTheClockSays() {
        long seed = new Random().nextLong();
        var random = new Random(seed);
        for (int i = 0; i < 100_000; i++) {
            // System.nanoTime may be below zero, and may pass it
            var clock = new AtomicLong(random.nextLong());
            var any = new BindBatcher(PERIOD, clock::get);
            any.await();
            clock.addAndGet(random.nextLong(PERIOD.toNanos()));
            assertThat(any.await()).as("seed %d", seed).isPositive().isLessThanOrEqualTo(PERIOD);
        }
    }
}
