package io.aliquot.scheduler.kubernetes.watch;

import static org.assertj.core.api.Assertions.assertThat;

import io.micrometer.core.instrument.Timer;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class WatchLatencyTest {
    private final SimpleMeterRegistry metrics = new SimpleMeterRegistry();
    private long now = Long.MAX_VALUE - 5; // of a clock that runs over
    private final WatchLatency lag = new WatchLatency(metrics, () -> now);

    @Test
    void itIsTheTimeFromTheAnswerToTheWatchsWord() {
        lag.sends("a");
        now += 1_000_000;
        lag.answered("a", true);
        now += 2_000_000;
        lag.told("a");
        assertThat(timer().count()).isEqualTo(1);
        assertThat(timer().totalTime(TimeUnit.MILLISECONDS)).isEqualTo(2);
    }

    @Test
    void whatTheWatchTellsBeforeTheAnswerIsNotLate() {
        lag.sends("a");
        now += 1_000_000;
        lag.told("a");
        lag.answered("a", true);
        now += 2_000_000;
        lag.told("a");
        assertThat(timer().count()).isEqualTo(1);
        assertThat(timer().totalTime(TimeUnit.MILLISECONDS)).isZero();
    }

    @Test
    void whatWasNotDoneOrIsNotOursOrIsGoneIsNotCounted() {
        lag.sends("refused");
        lag.answered("refused", false);
        lag.told("refused");
        lag.told("another scheduler's");
        lag.sends("gone");
        lag.answered("gone", true);
        lag.gone("gone");
        lag.told("gone");
        assertThat(timer().count()).isZero();
    }

    private Timer timer() {
        return metrics.get("aliquot.watch.lag").timer();
    }
}
