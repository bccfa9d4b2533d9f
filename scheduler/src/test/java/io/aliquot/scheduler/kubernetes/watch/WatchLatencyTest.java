package io.aliquot.scheduler.kubernetes.watch;

import static org.assertj.core.api.Assertions.assertThat;

import io.micrometer.core.instrument.Timer;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class WatchLatencyTest {
    private final SimpleMeterRegistry metrics = new SimpleMeterRegistry();
    private long now = Long.MAX_VALUE - 5; // of a clock that runs over
    private final WatchLatency latency = new WatchLatency(metrics, () -> now);

    @Test
    void latencyIsTheTimeFromTheAnswerToTheWatchEvent() {
        latency.bindingSent("a");
        now += 1_000_000;
        latency.bindingAnswered("a", true);
        now += 2_000_000;
        latency.boundPodReported("a");
        assertThat(timer().count()).isEqualTo(1);
        assertThat(timer().totalTime(TimeUnit.MILLISECONDS)).isEqualTo(2);
    }

    @Test
    void aWatchEventBeforeTheAnswerHasNoLatency() {
        latency.bindingSent("a");
        now += 1_000_000;
        latency.boundPodReported("a");
        latency.bindingAnswered("a", true);
        now += 2_000_000;
        latency.boundPodReported("a");
        assertThat(timer().count()).isEqualTo(1);
        assertThat(timer().totalTime(TimeUnit.MILLISECONDS)).isZero();
    }

    @Test
    void refusedForeignAndDeletedPodsAreNotCounted() {
        latency.bindingSent("refused");
        latency.bindingAnswered("refused", false);
        latency.boundPodReported("refused");
        latency.boundPodReported("another scheduler's");
        latency.bindingSent("gone");
        latency.bindingAnswered("gone", true);
        latency.podDeleted("gone");
        latency.boundPodReported("gone");
        assertThat(timer().count()).isZero();
    }

    private Timer timer() {
        return metrics.get("aliquot.watch.latency").timer();
    }
}
