package io.aliquot.scheduler.apiserver.client;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class BindBatcherTest {
    private static final Duration PERIOD = Duration.ofMillis(30);

    private final AtomicLong now = new AtomicLong(Duration.ofSeconds(100).toNanos());
    private final BindBatcher batcher = new BindBatcher(PERIOD, now::get);

    private Duration waitAfter(long millis) {
        now.addAndGet(Duration.ofMillis(millis).toNanos());
        return batcher.await();
    }

    @Test
    void theFirstBindingIsNotDelayed() {
        assertThat(waitAfter(0)).isZero();
    }

    @Test
    void aBindingAPeriodAfterTheLastIsNotDelayed() {
        waitAfter(0);
        assertThat(waitAfter(30)).isZero();
        assertThat(waitAfter(31)).isZero();
    }

    @Test
    void bindingsInQuickSuccessionAreSentAtTheSameTime() {
        waitAfter(20); // 100.02 s; batches are sent at 100.02, 100.05, …
        assertThat(waitAfter(1)).isEqualTo(Duration.ofMillis(29));
        assertThat(waitAfter(9)).isEqualTo(Duration.ofMillis(20));
        assertThat(waitAfter(19)).isEqualTo(Duration.ofMillis(1));
        assertThat(waitAfter(1)).as("the next one").isEqualTo(PERIOD);
    }

    @Test
    void noBindingWaitsLongerThanAPeriodForAnyValueOfTheClock() {
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
