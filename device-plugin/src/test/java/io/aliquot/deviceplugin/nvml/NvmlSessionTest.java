package io.aliquot.deviceplugin.nvml;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.deviceplugin.metrics.AgentMetrics;
import java.time.Duration;
import org.junit.jupiter.api.Test;

final class NvmlSessionTest {
    private long now = Long.MAX_VALUE - Duration.ofSeconds(1).toNanos(); // overflows in each test
    private int attempts;
    private final NvmlSession session = new NvmlSession(
            () -> {
                attempts++;
                throw new NvmlException("no driver, attempt " + attempts);
            },
            nvml -> () -> {},
            new AgentMetrics(),
            () -> {},
            () -> now);

    @Test
    void retriesToOpenNvmlWithGrowingPauses() {
        assertThat(session.read()).isEqualTo(new NvmlReading.Unavailable("no driver, attempt 1"));
        assertThat(session.read()).isEqualTo(new NvmlReading.Unavailable("no driver, attempt 1"));
        now += Duration.ofSeconds(1).toNanos();
        assertThat(session.read()).isEqualTo(new NvmlReading.Unavailable("no driver, attempt 2"));
        now += Duration.ofSeconds(1).toNanos();
        assertThat(session.read()).isEqualTo(new NvmlReading.Unavailable("no driver, attempt 2"));
        now += Duration.ofSeconds(1).toNanos();
        assertThat(session.read()).isEqualTo(new NvmlReading.Unavailable("no driver, attempt 3"));
    }

    @Test
    void measuresTheTimeSinceNvmlAnswered() {
        session.read();

        now += Duration.ofMinutes(11).toNanos();

        assertThat(session.unavailableFor()).isEqualTo(Duration.ofMinutes(11));
    }
}
