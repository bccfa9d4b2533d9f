package io.aliquot.deviceplugin.periodic;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class PeriodicTaskTest {
    @Test
    void theWorkGoesOnAfterARunThatFails() throws InterruptedException {
        var runs = new CountDownLatch(3);
        Duration pause = Duration.ofMillis(1);
        try (var task = new PeriodicTask("fails", pause, () -> {
            runs.countDown();
            throw new IllegalStateException("fails");
        })) {
            task.start();
            assertThat(runs.await(30, TimeUnit.SECONDS)).isTrue();
        }
    }

    @Test
    void noRunFollowsTheClose() throws InterruptedException {
        var runs = new AtomicInteger();
        var first = new CountDownLatch(1);
        var task = new PeriodicTask("counts", Duration.ofMillis(1), () -> {
            runs.incrementAndGet();
            first.countDown();
        });
        task.start();
        assertThat(first.await(30, TimeUnit.SECONDS)).isTrue();
        task.close();
        int last = runs.get();
        Thread.sleep(Duration.ofMillis(50));
        assertThat(runs).hasValue(last);
    }
}
