package io.aliquot.scheduler.periodic;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class PeriodicTasksTest {
    private final AtomicLong now = new AtomicLong(Long.MAX_VALUE - 1);

    /** An Error ended the task for good, without a line in the log. */
    @Test
    void aTaskGoesOnAfterAnError() throws Exception {
        var runs = new CountDownLatch(3);
        var task = new PeriodicTask("failing", Duration.ofMillis(1), () -> {
            runs.countDown();
            throw new StackOverflowError("the test's");
        });
        try (var tasks = new PeriodicTasks(List.of(task), now::get)) {
            assertThat(runs.await(10, TimeUnit.SECONDS)).isTrue();
            assertThat(tasks.broken()).isEmpty();
        }
    }

    @Test
    void aTaskThatDoesNotCompleteFailsTheLivenessProbe() throws Exception {
        var started = new CountDownLatch(1);
        var hanging = new PeriodicTask("hanging", Duration.ofMillis(1), () -> {
            started.countDown();
            sleep();
        });
        var slow = new PeriodicTask("slow", Duration.ofHours(1), () -> {});
        try (var tasks = new PeriodicTasks(List.of(slow, hanging), now::get)) {
            assertThat(started.await(10, TimeUnit.SECONDS)).isTrue();
            now.addAndGet(PeriodicTasks.SHORTEST_LIMIT.toNanos());
            assertThat(tasks.broken()).isEmpty();
            now.addAndGet(Duration.ofSeconds(1).toNanos());
            assertThat(tasks.broken()).hasValue("periodic task hanging has not completed for 601 s");
        }
    }

    private static void sleep() {
        try {
            Thread.sleep(Duration.ofHours(1));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
