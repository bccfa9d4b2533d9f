package io.aliquot.api.retry;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import org.junit.jupiter.api.Test;

final class BackoffTest {
    private static final Duration FIRST = Duration.ofSeconds(1);
    private static final Duration LONGEST = Duration.ofSeconds(5);

    private long now;
    private double random;
    private final Backoff backoff = new Backoff(() -> now, () -> random, FIRST, LONGEST);

    @Test
    void noPauseIsUnderWayAtFirst() {
        assertThat(backoff.isOver()).isTrue();
    }

    @Test
    void eachPauseIsTwiceAsLongUpToTheLongest() {
        assertThat(backoff.start()).isEqualTo(Duration.ofSeconds(1));
        assertThat(backoff.start()).isEqualTo(Duration.ofSeconds(2));
        assertThat(backoff.start()).isEqualTo(Duration.ofSeconds(4));
        assertThat(backoff.start()).isEqualTo(Duration.ofSeconds(5));
        assertThat(backoff.start()).isEqualTo(Duration.ofSeconds(5));
    }

    @Test
    void aPauseIsShorterByAtMostHalfByChance() {
        random = 0.5;
        assertThat(backoff.start()).isEqualTo(Duration.ofMillis(750));

        random = Math.nextDown(1.0);
        assertThat(backoff.start()).as("doubled from the full pause").isEqualTo(Duration.ofSeconds(1));
        now += Duration.ofSeconds(1).toNanos();
        assertThat(backoff.isOver()).isTrue();
    }

    @Test
    void aResetEndsThePauseAndStartsWithTheFirstAgain() {
        backoff.start();
        backoff.start();

        backoff.reset();

        assertThat(backoff.isOver()).isTrue();
        assertThat(backoff.start()).isEqualTo(FIRST);
    }

    @Test
    void startsWithTheFirstPauseAgainAfterTheLongestPauseWithoutOne() {
        backoff.start();
        backoff.start();

        now += Duration.ofSeconds(2).plus(LONGEST).toNanos() + 1;

        assertThat(backoff.start()).isEqualTo(FIRST);
    }

    /** System.nanoTime may overflow: deadlines compared with {@code <} then end at once or after centuries. */
    @Test
    void aPauseLastsItsTimeWhenTheClockOverflows() {
        now = Long.MAX_VALUE - Duration.ofMillis(500).toNanos();
        var backoff = new Backoff(() -> now, () -> random, FIRST, LONGEST);
        backoff.start();

        now += Duration.ofMillis(250).toNanos();
        assertThat(backoff.isOver()).as("before the overflow").isFalse();
        now += Duration.ofMillis(749).toNanos();
        assertThat(backoff.isOver()).as("after it").isFalse();
        now += Duration.ofMillis(1).toNanos();
        assertThat(backoff.isOver()).isTrue();
    }
}
